"""The server agent as a process, with an engine that behaves as told: readiness, deaths, and a stop that leaves nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from remote.protocol.codec import decode_progress_record
from remote.protocol.errors import ErrorInfo
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Progress, ServerPhase, ServerReady, ServerRestarting
from remote.protocol.run import EngineConfig, EngineName, FlagValue
from remote.protocol.specs import Capture, ServerSpec

REPOSITORY = Path(__file__).resolve().parents[2]
FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
PATIENCE_S = 30.0


def wait_for(condition: Callable[[], object]) -> object:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "this should have happened by now"
        time.sleep(0.02)
    return value


class ServerJob:
    """A job directory with the agent at work in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes = directory / "engine-notes"
        self.process: subprocess.Popen[bytes] | None = None
        model = directory / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4}))
        self.model = str(model)

    def start(
        self,
        behaviour: str,
        *,
        name: EngineName = "sglang",
        capture: bool = False,
        ranks: int = 1,
        ready_timeout_s: float = PATIENCE_S,
        flags: dict[str, FlagValue] | None = None,
        restarts: int = 0,
    ) -> None:
        engine = self.directory / "engine"
        engine.write_text(
            f'#!/bin/sh\n[ "$1" = -c ] && echo "0.0-fake /nowhere 1" && exit\nexec "{sys.executable}" "{FAKE_ENGINE}" "$@"\n'
        )
        engine.chmod(0o755)
        spec = ServerSpec(
            model=self.model,
            engine=EngineConfig(
                name=name,
                python=str(engine),
                device="cpu",
                environment={"FAKE_ENGINE": behaviour},
                ready_timeout_s=ready_timeout_s,
                flags=flags or {},
                restarts=restarts,
                tensor_parallel_size=ranks,
            ),
            capture=Capture(layer_ids=[1], spool_directory=str(self.spool)) if capture else None,
        )
        (self.directory / "spec.json").write_bytes(msgspec.json.encode(spec))
        environment = {
            **os.environ,
            "ROOST_JOB_DIR": str(self.directory),
            "ROOST_ROOT": str(self.directory),
            "PYTHONPATH": str(REPOSITORY),
            "FAKE_ENGINE_NOTES": str(self.notes),
        }
        with (self.directory / "out.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "remote.agents.server.worker"], env=environment, stdout=log, stderr=log
            )

    @property
    def spool(self) -> Path:
        return self.directory / "spool"

    def events(self) -> list[Progress]:
        path = self.directory / "progress.jsonl"
        return [decode_progress_record(line).event for line in path.read_bytes().splitlines()] if path.exists() else []

    def ready(self) -> ServerReady | None:
        return next(iter(self.all_ready()), None)

    def all_ready(self) -> list[ServerReady]:
        return [event for event in self.events() if isinstance(event, ServerReady)]

    def restarting(self) -> list[ServerRestarting]:
        return [event for event in self.events() if isinstance(event, ServerRestarting)]

    def family(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def failure(self) -> ErrorInfo:
        return msgspec.json.decode((self.directory / "failure.json").read_bytes(), type=ErrorInfo)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[ServerJob]:
    job = ServerJob(tmp_path / "server-1")
    yield job
    if job.process is not None and job.process.poll() is None:
        for process in [*job.family(), psutil.Process(job.process.pid)]:
            process.kill()
        job.process.wait()


def test_a_ready_server_tells_where_it_answers(job: ServerJob):
    job.start("")
    wait_for(job.ready)
    ready = job.ready()
    assert ready is not None
    assert (ready.engine, ready.engine_version, ready.model) == ("sglang", "0.0-fake", job.model)
    assert httpx.get(f"{ready.url}/ready").status_code == 200
    assert psutil.pid_exists(ready.pid)
    job.stop()
    job.exit_code()


@pytest.mark.parametrize("behaviour", ["", pytest.param("deaf", marks=pytest.mark.slow)])
def test_a_stop_leaves_no_process_of_the_engine(job: ServerJob, behaviour: str):
    job.start(behaviour)
    wait_for(job.ready)
    family = job.family()
    assert len(family) >= 2
    job.stop()
    assert job.exit_code() == 0
    assert not [process for process in family if process.is_running()]
    assert job.notes.read_text() == "/abort_request"
    last = job.events()[-1]
    assert isinstance(last, ServerPhase)
    assert last.phase == "stopping"


def test_vllm_is_ready_once_it_has_computed_a_token(job: ServerJob):
    job.start("", name="vllm")
    wait_for(job.ready)
    ready = job.ready()
    assert ready is not None
    assert (ready.engine, ready.engine_version) == ("vllm", "0.0-fake")
    phases = [event.phase for event in job.events() if isinstance(event, ServerPhase)]
    assert (phases[0], phases[-1]) == ("launching", "warming_up")
    assert job.notes.read_text() == "/v1/completions"
    family = job.family()
    job.stop()
    assert job.exit_code() == 0
    assert not [process for process in family if process.is_running()]
    assert job.notes.read_text() == "/v1/completions", "SIGTERM alone drops what it computes"


def test_a_server_that_dies_of_its_first_token_was_never_ready(job: ServerJob):
    job.start("dies-of-a-token", name="vllm")
    assert job.exit_code() == 1
    assert "before it was ready" in job.failure().message
    assert "does not know heads of this size" in job.failure().message
    assert job.ready() is None


def test_a_stop_while_the_engine_loads_is_heard(job: ServerJob):
    job.start("never-ready")
    wait_for(lambda: len(job.family()) >= 2)
    family = job.family()
    job.stop()
    assert job.exit_code() == 143
    assert not [process for process in family if process.is_running()]


def test_an_engine_that_dies_at_its_launch_fails_the_job_with_the_reason(job: ServerJob):
    job.start("dies")
    assert job.exit_code() == 1
    assert "ran out of memory" in job.failure().message
    assert "--mem-fraction-static" in job.failure().message


def test_an_engine_that_dies_while_serving_fails_the_job(job: ServerJob):
    job.start("dies-later")
    assert job.exit_code() == 1
    assert "ran out of memory" in job.failure().message


def test_an_engine_that_is_killed_is_launched_again_at_its_port_and_nothing_of_it_is_left(job: ServerJob):
    job.start("", restarts=2)
    wait_for(job.ready)
    family = job.family()
    (first,) = job.all_ready()
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: len(job.all_ready()) == 2)
    second = job.all_ready()[-1]
    assert (second.url, second.restarts) == (first.url, 1)
    assert second.pid != first.pid
    assert not [process for process in family if process.is_running()]
    (told,) = job.restarting()
    assert (told.restart, told.most) == (1, 2)
    assert told.reason.startswith("while it was serving, the engine ended with signal 9")
    assert httpx.get(f"{second.url}/ready").status_code == 200
    job.stop()
    assert job.exit_code() == 0
    summary = msgspec.json.decode((job.directory / "result.json").read_bytes(), type=JobResult).summary
    assert summary["restarts"] == 1


def test_an_engine_that_dies_again_and_again_is_given_up(job: ServerJob):
    job.start("dies-later", restarts=1)
    assert job.exit_code() == 1
    assert len(job.restarting()) == 1
    assert job.failure().message.startswith("launched again once and dead again: while it was serving")
    assert "ran out of memory" in job.failure().message


@pytest.mark.parametrize("behaviour", ["dies", "finds-its-port-taken"])
def test_an_engine_that_does_not_become_ready_is_not_launched_again(job: ServerJob, behaviour: str):
    job.start(behaviour, restarts=3)
    assert job.exit_code() == 1
    assert job.restarting() == []


def test_nor_is_one_that_does_not_become_ready_the_second_time(job: ServerJob):
    job.start("dies-the-second-time", restarts=3)
    wait_for(job.ready)
    (first,) = job.all_ready()
    os.kill(first.pid, signal.SIGKILL)
    assert job.exit_code() == 1
    assert len(job.restarting()) == 1
    assert "before it was ready" in job.failure().message


def test_a_stop_between_two_launches_is_heard(job: ServerJob):
    job.start("", restarts=3)
    wait_for(job.ready)
    (first,) = job.all_ready()
    os.kill(first.pid, signal.SIGKILL)
    wait_for(job.restarting)
    job.stop()
    assert job.exit_code() in (0, 143)
    assert not job.directory.joinpath("failure.json").exists()


def test_trouble_that_it_got_over_is_no_reason_for_a_later_death(job: ServerJob):
    job.start("recovers-and-ends")
    assert job.exit_code() == 1
    assert "while it was serving, the engine ended with exit code 7. It said last" in job.failure().message
    assert "Goodbye." in job.failure().message
    assert "ran out of memory" not in job.failure().message


def test_an_engine_that_lives_on_without_its_port_is_not_waited_for(job: ServerJob):
    job.start("finds-its-port-taken")
    assert job.exit_code() == 1
    assert "gave up and did not end: somebody else took its port" in job.failure().message


def test_an_engine_that_is_never_ready_is_given_up(job: ServerJob):
    job.start("never-ready", ready_timeout_s=1.0)
    assert job.exit_code() == 1
    assert "not ready after" in job.failure().message


def test_a_server_whose_capture_never_announced_itself_is_not_ready(job: ServerJob):
    job.start("", capture=True)
    assert job.exit_code() == 1
    assert "its capture plugin is not at work" in job.failure().message
    assert job.ready() is None


def test_every_rank_has_to_announce_its_capture(job: ServerJob):
    job.start("announces late-rank", capture=True, ranks=2)
    wait_for(job.ready)
    assert (job.spool / "ready-rank1.json").exists()
    job.stop()
    assert job.exit_code() == 0


def test_what_an_earlier_server_left_in_the_spool_is_not_taken_for_this_one(job: ServerJob):
    job.spool.mkdir()
    (job.spool / "ready-rank0.json").write_text("{}")
    job.start("", capture=True)
    assert job.exit_code() == 1
    assert "its capture plugin is not at work" in job.failure().message


def test_a_capturing_server_is_ready_once_its_plugin_said_so(job: ServerJob):
    job.start("announces", capture=True)
    wait_for(job.ready)
    job.stop()
    assert job.exit_code() == 0
    assert msgspec.json.decode((job.directory / "result.json").read_bytes(), type=JobResult).summary["url"]


def test_a_missing_model_is_a_precondition(job: ServerJob):
    Path(job.model, "config.json").unlink()
    job.start("")
    assert job.exit_code() == 5
    assert "there is no model" in job.failure().message


def test_an_option_that_the_engine_does_not_know_ends_it_before_the_launch(job: ServerJob):
    job.start("", flags={"max-total-token": 64})
    assert job.exit_code() == 5
    assert "did you mean --max-total-tokens?" in job.failure().message
    assert not [event for event in job.events() if isinstance(event, ServerPhase)]


def test_an_engine_that_cannot_even_say_its_options_is_told_with_its_words(job: ServerJob):
    job.start("cannot-help")
    assert job.exit_code() == 5
    assert "No module named 'sglang'" in job.failure().message
