"""The disk is full at each kind of write of the work: the old state stays, the job is paused, with room it ends as if nothing had been."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import roost_capture_spool as spool
import torch

from remote.agents import room
from remote.agents.evaluation import worker as evaluation
from remote.agents.extraction import requests
from remote.agents.extraction import worker as extraction
from remote.agents.harness import JobContext
from remote.agents.training import checkpoint, publishing
from remote.agents.training import worker as training
from remote.agents.vocabulary import worker as vocabulary
from remote.artifacts import mapping_copy, safetensors_stream, store_writer
from remote.artifacts.manifest import verify
from remote.pipeline import trials, tuner, tuning, verdict
from remote.protocol.reports import ArmLevel, EvaluationReport, VerdictReport
from remote.protocol.run import EvaluationConfig, VocabularyConfig
from remote.protocol.specs import EvaluationSpec, MappingCopySpec, VocabularySpec
from remote.protocol.tuning import TuningReport
from tests.agents.test_extraction_worker import CONVERSATIONS, LAYERS, MODEL, Engine, spec_of
from tests.agents.test_training_worker import Inputs
from tests.faults.small_disks import SmallDisk
from tests.protocol.protocol_samples import BENCHMARK_REPORT, TUNING_REPORT

KIMI = Path(__file__).parents[1] / "golden/kimi-k2.5-vocabulary"

Work = Callable[[JobContext, Path], object]
"""Does the work of a job; what it writes goes below the path."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "POLL_S", 0.02)
    monkeypatch.setattr(spool, "ROOM_POLL_S", 0.02)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "spool").mkdir()
    made = Engine(tmp_path / "spool")
    made.ready(LAYERS)
    yield made
    made.server.shutdown()


@pytest.fixture
def works(tmp_path: Path, engine: Engine) -> dict[str, Work]:
    inputs = Inputs(tmp_path)

    def extract(job: JobContext, target: Path) -> object:
        spec = spec_of(engine, tmp_path, concurrency=1)
        patient = msgspec.structs.replace(spec.extraction, when_short="wait")
        return extraction.work(msgspec.structs.replace(spec, store=str(target / "store"), extraction=patient), job)

    def copy(job: JobContext, target: Path) -> object:
        return vocabulary.work(MappingCopySpec(source=str(KIMI), destination=str(target / "copy")), job)

    def build(job: JobContext, target: Path) -> object:
        return vocabulary.work(
            VocabularySpec(
                store=str(tmp_path / "store"),
                target_model=str(tmp_path / "target"),
                mapping=str(target / "mapping"),
                vocabulary=VocabularyConfig(draft_vocab_size=24),
                fingerprint="f",
            ),
            job,
        )

    def train(job: JobContext, target: Path) -> object:
        return _train(inputs, job, checkpoints=target / "checkpoints", drafter=tmp_path / f"{target.name}-drafter")

    def export(job: JobContext, target: Path) -> object:
        return _train(inputs, job, checkpoints=tmp_path / f"{target.name}-checkpoints", drafter=target / "drafter")

    return {
        "extract": extract,
        "copy": copy,
        "build": build,
        "train": train,
        "export": export,
        "report": lambda job, target: _report(job, target / "report", tmp_path),
        "judge": lambda job, target: _judge(job, target / "verdict"),
        "tune": _tune,
    }


def _train(inputs: Inputs, job: JobContext, *, checkpoints: Path, drafter: Path) -> object:
    spec = inputs.spec(steps=4, checkpoint_every=2)
    spec = msgspec.structs.replace(spec, checkpoints=str(checkpoints), drafter=str(drafter))
    torch.manual_seed(0)  # the state of its random numbers is in a checkpoint
    result = training.work(spec, job)
    assert drafter.joinpath("manifest.json").exists()
    return result


def _report(job: JobContext, target: Path, home: Path) -> object:
    spec = EvaluationSpec(
        arm="baseline",
        url="http://127.0.0.1:9",
        target_model=str(MODEL),
        prompts=str(CONVERSATIONS),
        report=str(target),
        evaluation=EvaluationConfig(prompts=2),
        fingerprint="f",
    )
    return evaluation.Evaluation(spec, job)._write(_arm("baseline"))


def _arm(arm: str) -> EvaluationReport:
    return EvaluationReport(
        arm=arm,
        model="m",
        drafter=None,
        engine="sglang",
        engine_version="0",
        dtype="float32",
        attention_backend="torch",
        host_name="host",
        devices=[],
        measured_at=0.0,
        levels=[
            ArmLevel(
                concurrency=1,
                prompts=[],
                seconds=1.0,
                decode_tokens_per_s=1.0,
                end_to_end_tokens_per_s=1.0,
                output_tokens_per_s=1.0,
                acceptance_length=None,
            )
        ],
        compared_outputs=0,
        divergences=[],
        fingerprint="f",
    )


def _judge(job: JobContext, target: Path) -> object:
    report = VerdictReport(
        decision="reject",
        baseline_tokens_per_s=1.0,
        drafter_tokens_per_s=1.0,
        speedup=1.0,
        speedup_interval=(1.0, 1.0),
        acceptance_length=1.0,
        coverage=None,
        prompts=1,
        identical_outputs=1,
        near_ties=0,
        real_divergences=0,
        dtype="float32",
        attention_backend=None,
        engine="sglang 0",
        reasons=[],
        advice=[],
    )
    job.write_with_room(target, 64 << 10, lambda: verdict.write_verdict(target, report, fingerprint="f"))
    return None


def _tune(job: JobContext, target: Path) -> object:
    kept = trials.Kept(report=BENCHMARK_REPORT, benchmark_job_id="job")
    trials.keep(target / "measurements/one.json", kept, job)
    return tuner.publish(TUNING_REPORT, target, job)


class Point(NamedTuple):
    """A write of some work: the disk fills just before `function` of `module` is called for the first time."""

    work: str
    module: object
    function: str


POINTS = {
    "a shard": Point("extract", safetensors_stream, "reserve_bytes"),
    "the store's journal": Point("extract", store_writer, "append_durably"),
    "the store's manifest": Point("extract", store_writer, "write_manifest"),
    "a copied file": Point("copy", mapping_copy, "copy_files"),
    "the manifest of a copy": Point("copy", mapping_copy, "seal_mapping"),
    "a mapping's arrays": Point("build", vocabulary, "write_mapping"),
    "a mapping's tensors": Point("build", vocabulary, "save_tensors"),
    "a checkpoint": Point("train", checkpoint, "_state"),
    "a checkpoint's manifest": Point("train", checkpoint, "write_manifest"),
    "the drafter": Point("export", publishing, "write_checkpoint"),
    "the drafter's manifest": Point("export", publishing, "write_manifest"),
    "a report": Point("report", evaluation, "write_atomic"),
    "a report's manifest": Point("report", evaluation, "write_manifest"),
    "a trial's figures": Point("tune", trials, "write_atomic"),
    "a tuning's report": Point("tune", tuner, "write_atomic"),
    "the manifest of a tuning": Point("tune", tuner, "write_manifest"),
    "the verdict": Point("judge", verdict, "write_atomic"),
    "the verdict's manifest": Point("judge", verdict, "write_manifest"),
}


def open_job(home: Path, name: str) -> JobContext:
    (home / name).mkdir()
    return JobContext(home / name, home)


def content(target: Path) -> dict[str, str]:
    """The hashes of everything that was made; manifests have times in them, and are checked by whoever reads them."""
    files = (path for path in sorted(target.rglob("*")) if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(target)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def in_a_thread(work: Work, job: JobContext, target: Path) -> tuple[threading.Thread, list[BaseException]]:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            work(job, target)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, caught


def read_pause(job: JobContext) -> dict[str, object]:
    return json.loads((job.directory / "pause.json").read_bytes())


def go_through_a_pause(work: Work, job: JobContext, disk: SmallDisk) -> dict[str, object]:
    """Start `work`, wait until it is paused, look at what lies there, make room, wait for its end; the pause."""
    target = disk.path / "made"
    thread, caught = in_a_thread(work, job, target)
    until(lambda: (job.directory / "pause.json").exists() or not thread.is_alive())
    assert not caught
    pause = read_pause(job)
    assert not [path for path in disk.path.rglob("*.part") if path.is_file()], "something half-written lies there"
    disk.make_room()
    thread.join()
    assert not caught
    assert not (job.directory / "pause.json").exists()
    return pause


def undisturbed(work: Work, home: Path) -> dict[str, str]:
    work(open_job(home, "plain-job"), home / "plain")
    return content(home / "plain")


@pytest.mark.parametrize("label", POINTS)
def test_a_disk_that_fills_in_the_middle(
    label: str, works: dict[str, Work], small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = POINTS[label]
    work = works[point.work]
    expected = undisturbed(work, tmp_path)
    real = getattr(point.module, point.function)
    calls = iter(range(1_000_000))

    def fill_first(*arguments: object, **named: object) -> object:
        if next(calls) == 0:
            small_disk.fill()
        return real(*arguments, **named)

    monkeypatch.setattr(point.module, point.function, fill_first)
    pause = go_through_a_pause(work, open_job(tmp_path, "job"), small_disk)
    assert str(small_disk.path / "made") in str(pause["reason"])
    assert str(pause["reason"]).startswith("no room to write")
    assert content(small_disk.path / "made") == expected


@pytest.mark.parametrize("name", ["extract", "copy", "build", "train", "export", "report", "judge", "tune"])
def test_a_disk_that_is_too_full_is_not_even_begun_on(
    name: str, works: dict[str, Work], small_disk: SmallDisk, tmp_path: Path
) -> None:
    expected = undisturbed(works[name], tmp_path)
    small_disk.fill(leave=16 << 10)
    job = open_job(tmp_path, "job")
    pause = go_through_a_pause(works[name], job, small_disk)
    needed, free = pause["bytes_needed"], pause["bytes_free"]
    assert isinstance(needed, int)
    assert isinstance(free, int)
    assert free < needed
    assert content(small_disk.path / "made") == expected
    assert b"paused: no room to write" in (job.directory / "progress.jsonl").read_bytes()


def test_a_copy_that_refuses_a_disk_by_itself_waits_for_it_too(
    works: dict[str, Work], small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(works["copy"], tmp_path)
    monkeypatch.setattr(vocabulary, "_copy_bytes", lambda _: None)
    small_disk.fill(leave=16 << 10)
    go_through_a_pause(works["copy"], open_job(tmp_path, "job"), small_disk)
    assert content(small_disk.path / "made") == expected


def test_without_inodes_the_reason_says_so(works: dict[str, Work], few_inodes: SmallDisk, tmp_path: Path) -> None:
    expected = undisturbed(works["copy"], tmp_path)
    few_inodes.use_up_inodes()
    assert few_inodes.bytes_free > 4 << 20
    pause = go_through_a_pause(works["copy"], open_job(tmp_path, "job"), few_inodes)
    assert "no inodes left to write" in str(pause["reason"])
    assert pause["inodes_free"] == 0
    assert content(few_inodes.path / "made") == expected


def test_inodes_that_run_out_in_the_middle(
    works: dict[str, Work], few_inodes: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(works["copy"], tmp_path)
    real = mapping_copy.copy_files
    calls = iter(range(9))

    def use_up_first(*arguments: object) -> object:
        if next(calls) == 0:
            few_inodes.use_up_inodes()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(mapping_copy, "copy_files", use_up_first)
    pause = go_through_a_pause(works["copy"], open_job(tmp_path, "job"), few_inodes)
    assert "inodes" in str(pause["reason"])
    assert content(few_inodes.path / "made") == expected


def test_a_copy_that_waits_leaves_what_it_replaces(small_disk: SmallDisk, tmp_path: Path) -> None:
    """The old mapping is whole while the new one waits, and is kept beside it afterwards."""
    target = small_disk.path / "made"
    target.mkdir()
    (target / "d2t.npy").touch()
    (target / "notes").write_text("the old one")
    small_disk.fill(leave=16 << 10)
    job = open_job(tmp_path, "job")
    spec = MappingCopySpec(source=str(KIMI), destination=str(target), replace=True)
    thread, caught = in_a_thread(lambda job, _: vocabulary.work(spec, job), job, target)
    until((job.directory / "pause.json").exists)
    assert (target / "notes").read_text() == "the old one"
    small_disk.make_room()
    thread.join()
    assert not caught
    (aside,) = small_disk.path.glob("made.replaced-*")
    assert (aside / "notes").read_text() == "the old one"


def test_a_tuning_that_waits_leaves_the_report_of_the_one_before(small_disk: SmallDisk, tmp_path: Path) -> None:
    before = msgspec.structs.replace(TUNING_REPORT, reason="of the tuning before")
    job, target = open_job(tmp_path, "job"), small_disk.path / "made"
    tuner.publish(before, target, job)
    small_disk.fill()
    thread, caught = in_a_thread(lambda job, target: tuner.publish(TUNING_REPORT, target, job), job, target)
    until((job.directory / "pause.json").exists)
    assert read_report(target) == before
    small_disk.make_room()
    thread.join()
    assert not caught
    assert read_report(target) == TUNING_REPORT
    assert [path.name for path in target.iterdir()] == ["report"]


def read_report(target: Path) -> TuningReport:
    verify(target / "report")
    return msgspec.json.decode((target / "report" / tuning.REPORT_NAME).read_bytes(), type=TuningReport)


def test_the_spool_of_a_server_waits_for_room_and_loses_nothing(small_disk: SmallDisk) -> None:
    """The scheduler's thread is never held up by it, and the extraction can read why it waits."""
    failures: list[str] = []
    marker = spool.WaitingMarker(small_disk.path / "waiting-rank0.json")
    states = torch.arange(4096.0).reshape(64, 1, 64)
    parts = [spool.Rows(0, states, states[:, 0], torch.arange(64), None)]
    count = 16
    setting = spool.Setting(small_disk.path, [1], memory_bytes=4 * parts[0].nbytes)
    writer = spool.SpoolWriter(setting, failures.append, marker, memory_bytes=setting.memory_bytes)
    small_disk.fill()
    for number in range(count):
        writer.reserve(parts[0].nbytes, lambda: 0)
        writer.put(f"roost-{number}", parts)
    until(lambda: find_waiting_path(small_disk.path) == "roost-0.safetensors")
    assert not list(small_disk.path.glob("*.part"))
    assert not list(small_disk.path.glob("*.safetensors"))
    small_disk.make_room()
    until(lambda: len(list(small_disk.path.glob("*.safetensors"))) == count)
    until(lambda: find_waiting_path(small_disk.path) is None)
    assert not failures


def find_waiting_path(home: Path) -> str | None:
    shortage = extraction.find_waiting(home)
    return None if shortage is None else shortage.path.name


def test_the_extraction_is_paused_while_its_server_waits_for_room(
    works: dict[str, Work], engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_LOOK_S", 0.02)
    expected = undisturbed(works["extract"], tmp_path)
    marker = spool.WaitingMarker(engine.spool / "waiting-rank0.json")
    held: list[tuple[str, list[int]]] = []
    leave = engine.leave

    def hold(rid: str, ids: list[int]) -> None:
        if engine.sent[3:] and not held:
            held.append((rid, ids))
            marker.set(engine.spool / f"{rid}.safetensors", 1 << 60, "No space left on device")
        else:
            leave(rid, ids)

    engine.sent.clear()
    engine.leave = hold  # type: ignore[method-assign]
    job = open_job(tmp_path, "job")
    thread, caught = in_a_thread(works["extract"], job, tmp_path / "made")
    until((job.directory / "pause.json").exists)
    assert str(engine.spool) in str(read_pause(job)["reason"])
    sent = len(engine.sent)
    leave(*held[0])
    marker.clear()
    thread.join()
    assert not caught
    assert sent == 4, "nothing more was sent while the server waited"
    assert content(tmp_path / "made") == expected
