"""What one job does at a time is refused to a second by the host itself, whoever asks and however many at once."""

import sys
import threading
from pathlib import Path

import pytest

from remote.errors import Precondition, RoostError
from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.protocol.jobs import is_over
from remote.protocol.run import BenchmarkConfig, EngineConfig, ExtractionConfig, TrainingConfig
from remote.protocol.specs import (
    BenchmarkSpec,
    Capture,
    ExtractionSpec,
    ServerSpec,
    Spec,
    StoreMergeSpec,
    TrainingSpec,
)
from tests.jobs.workshop import RELEASE, Workshop

SERVER = ServerSpec(model="/m", engine=EngineConfig(device="cpu"))


def plan_sleep(spec: Spec) -> LaunchPlan:
    return LaunchPlan(agent="asleep", argv=["/bin/sleep", "600"], stop_grace_s=5.0)


def measuring(server_job_id: str) -> BenchmarkSpec:
    return BenchmarkSpec(
        url="http://127.0.0.1:9",
        server_job_id=server_job_id,
        server=SERVER,
        prompts="p.jsonl",
        benchmark=BenchmarkConfig(),
    )


@pytest.fixture
def shop(workshop: Workshop) -> Workshop:
    workshop.store = JobStore(workshop.root, RELEASE, sys.executable, plan=plan_sleep)
    return workshop


def begin(shop: Workshop, job_id: str, spec: Spec, run_id: str | None = None) -> None:
    shop.store.start(job_id, spec, actor="ann", op_id=f"start-{job_id}", run_id=run_id)


def test_of_many_that_begin_at_once_one_measures(shop: Workshop) -> None:
    begin(shop, "serving", SERVER)
    refused: list[RoostError] = []

    def try_to(number: int) -> None:
        try:
            begin(shop, f"benchmark-{number}", measuring("serving"))
        except Precondition as error:
            refused.append(error)

    threads = [threading.Thread(target=try_to, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (left,) = [job for job in shop.store.list() if isinstance(job.spec, BenchmarkSpec)]
    assert len(refused) == 3
    assert all(f"{left.job_id} measures serving already" in str(error) for error in refused)
    assert not any(Path(shop.store.directory(f"benchmark-{n}")).exists() for n in range(4) if str(n) != left.job_id[-1])


def test_the_same_one_may_be_asked_for_again_and_the_next_when_it_is_over(shop: Workshop) -> None:
    begin(shop, "serving", SERVER)
    begin(shop, "benchmark-1", measuring("serving"))
    begin(shop, "benchmark-1", measuring("serving"))
    begin(shop, "other-serving", SERVER)
    begin(shop, "benchmark-2", measuring("other-serving"))
    shop.stop("benchmark-1")
    shop.until("benchmark-1", lambda job: is_over(job.state))
    begin(shop, "benchmark-3", measuring("serving"))


def test_a_server_of_a_run_is_measured_by_that_run_alone(shop: Workshop) -> None:
    begin(shop, "tuning", SERVER)
    begin(shop, "tuning-serving", SERVER, run_id="tuning")
    with pytest.raises(Precondition, match="tuning-serving works for tuning") as caught:
        begin(shop, "benchmark-1", measuring("tuning-serving"))
    assert "roost server start" in (caught.value.info.hint or "")
    begin(shop, "tuning-benchmark", measuring("tuning-serving"), run_id="tuning")


def test_two_trainings_never_write_the_same_checkpoints(shop: Workshop) -> None:
    def training(place: str) -> TrainingSpec:
        return TrainingSpec(
            store="/s",
            mapping="/m",
            target_model="/t",
            drafter=f"{place}/drafter",
            checkpoints=f"{place}/checkpoints",
            training=TrainingConfig(steps=1, device="cpu"),
            fingerprint="f",
        )

    begin(shop, "one", training("/a"))
    with pytest.raises(Precondition, match="one trains in /a/checkpoints already"):
        begin(shop, "two", training("/a"))
    begin(shop, "elsewhere", training("/b"))
    shop.stop("one")
    shop.until("one", lambda job: is_over(job.state))
    begin(shop, "two", training("/a"))


def test_two_jobs_never_write_the_same_store(shop: Workshop) -> None:
    def extraction(store: str) -> ExtractionSpec:
        return ExtractionSpec(
            url="http://127.0.0.1:9",
            capture=Capture(layer_ids=[1], spool_directory="/spool"),
            target_model="/t",
            conversations="c.jsonl",
            store=store,
            extraction=ExtractionConfig(layer_ids=[1]),
            max_length=9,
            fingerprint="f",
        )

    begin(shop, "one", extraction(str(shop.store.root / "runs/a/store")))
    merge = StoreMergeSpec(parts=["p", "q"], store="runs/a/store")
    for job_id, second in (("two", extraction("runs/a/store")), ("three", merge)):
        with pytest.raises(Precondition, match=r"one writes .*/runs/a/store already") as caught:
            begin(shop, job_id, second)
        assert caught.value.info.next_command == "roost wait one"
    begin(shop, "elsewhere", extraction("runs/b/store"))
    shop.stop("one")
    shop.until("one", lambda job: is_over(job.state))
    begin(shop, "three", merge)
