"""Tiny models, and a server agent that serves them with the real engine."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import psutil
import pytest

from remote.protocol.codec import decode_progress_record
from remote.protocol.errors import ErrorInfo
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Progress, ServerReady
from remote.protocol.specs import ServerSpec

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
CPU = REPOSITORY / "remote/engines/sglang_cpu"


class ServerJob(NamedTuple):
    """A server agent at work, without a supervisor above it."""

    process: "subprocess.Popen[bytes]"
    directory: Path

    def events(self) -> list[Progress]:
        lines = (self.directory / "progress.jsonl").read_bytes().splitlines(keepends=True)
        return [decode_progress_record(line).event for line in lines]

    def log(self) -> str:
        return (self.directory / "out.log").read_text(errors="replace")

    def wait_until_ready(self, seconds: float = 240, *, after: ServerReady | None = None) -> ServerReady:
        deadline = time.monotonic() + seconds
        restarts = 0 if after is None else after.restarts + 1
        while self.process.poll() is None and time.monotonic() < deadline:
            if (self.directory / "progress.jsonl").exists():
                for event in self.events():
                    if isinstance(event, ServerReady) and event.restarts >= restarts:
                        return event
            time.sleep(0.1)
        raise AssertionError(f"the server never was ready:\n{self.log()[-4000:]}")

    def take_port(self, seconds: float = 60) -> socket.socket:
        """Listen on the port that the agent chose for its engine, as soon as it has said which: the engine still loads."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            if (told := re.search(r"--port[= ](\d+)", self.log())) is not None:
                return socket.create_server(("127.0.0.1", int(told[1])))
            time.sleep(0.01)
        raise AssertionError(f"no engine was launched:\n{self.log()[-4000:]}")

    def family(self) -> list[psutil.Process]:
        """Everything that the agent started and that lives, the engine and what it started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def failure(self) -> ErrorInfo:
        """Wait for the agent to fail; what it says of that."""
        assert self.process.wait(240) == 1, self.log()[-4000:]
        return msgspec.json.decode((self.directory / "failure.json").read_bytes(), type=ErrorInfo)

    def stop(self) -> tuple[int, JobResult]:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        return code, msgspec.json.decode((self.directory / "result.json").read_bytes(), type=JobResult)


Serve = Callable[[ServerSpec], ServerJob]


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended."""
    return [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="session")
def tiny_models(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    environment = {**os.environ, "PYTHONPATH": str(CPU), "OMP_NUM_THREADS": "1"}
    script = HERE / "tiny_models.py"
    subprocess.run([engine_python, script, directory], env=environment, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def serve(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts server agents under the engine's Python; whatever a test leaves of them is killed."""
    yield from _serve(engine_python, tmp_path_factory)


@pytest.fixture(scope="module")
def serve_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts server agents under the tests' Python, which has no engine: their specs name its own."""
    yield from _serve(Path(sys.executable), tmp_path_factory)


def _serve(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    jobs: list[ServerJob] = []

    def start(spec: ServerSpec) -> ServerJob:
        directory = tmp_path_factory.mktemp("job")
        (directory / "spec.json").write_bytes(msgspec.json.encode(spec))
        environment = {
            **os.environ,
            "ROOST_JOB_DIR": str(directory),
            "ROOST_ROOT": str(directory.parent),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
        }
        with (directory / "out.log").open("ab") as log:
            process = subprocess.Popen(
                [python, "-m", "remote.agents.server.worker"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        jobs.append(ServerJob(process, directory))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.process.poll() is None:
            family = [job.process.pid, *(child.pid for child in job.family())]
            job.process.terminate()
            try:
                job.process.wait(60)
            except subprocess.TimeoutExpired:
                for pid in family:
                    os.kill(pid, signal.SIGKILL)


def generate(url: str, ids: list[int], tokens: int, rid: str | None = None) -> dict[str, Any]:
    """SGLang's answer to `ids`, greedily continued by `tokens` tokens."""
    parameters = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": parameters, **({} if rid is None else {"rid": rid})}
    return httpx.post(f"{url}/generate", json=body, timeout=300).raise_for_status().json()


def reference_states(engine_python: Path, model: Path, prompts: list[list[int]], out: Path) -> Path:
    """A safetensors file with what transformers computes for `prompts`."""
    asked = out.with_suffix(".json")
    asked.write_text(json.dumps(prompts))
    environment = {**os.environ, "PYTHONPATH": str(CPU), "OMP_NUM_THREADS": "1"}
    command = [engine_python, HERE / "reference_states.py", model, asked, out]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return out
