"""The server agent's work: launch the engine, tell when it answers, wait, stop it without leaving anything behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import httpx
import psutil

from remote.agents.harness import JobContext, Stopped, main
from remote.agents.server.failures import explain_death
from remote.agents.server.plan import HOST, engine_command, read_model_config
from remote.errors import Precondition, WorkFailed
from remote.protocol.jobs import JobResult
from remote.protocol.progress import ServerPhase, ServerReady
from remote.protocol.specs import ServerSpec

_POLL_S = 0.25
_HTTP_TIMEOUT_S = 10.0
_DRAIN_S = 30.0
_KILL_S = 10.0

_Phase = Literal["launching", "loading_weights", "capturing_graphs", "warming_up"]

_MILESTONES: tuple[tuple[str, _Phase], ...] = (
    ("Load weight begin", "loading_weights"),
    ("CUDA graph begin", "capturing_graphs"),
    ("max_total_num_tokens=", "warming_up"),
)


class Engine:
    """A launched engine and everything that it started."""

    def __init__(self, spec: ServerSpec, job: JobContext) -> None:
        self.spec = spec
        self.job = job
        self.port = _free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.started = time.monotonic()
        self.log = job.directory / "out.log"
        self.log_offset = self.log.stat().st_size if self.log.exists() else 0
        command = engine_command(
            spec, python=sys.executable, port=self.port, model_config=read_model_config(spec.model)
        )
        sys.stdout.write("launching: " + " ".join(command.argv) + "\n")
        sys.stdout.flush()
        self._phase: str | None = None
        self.process = subprocess.Popen(
            command.argv, env={**os.environ, **command.environment}, stdin=subprocess.DEVNULL
        )
        self._family: dict[int, psutil.Process] = {}

    def wait_until_ready(self) -> None:
        """Return when the server answers; raises WorkFailed when it dies or takes too long, Stopped when asked to stop."""
        deadline = self.started + self.spec.engine.ready_timeout_s
        while not self._answers():
            self.job.check_stop()
            self.raise_if_dead()
            self._tell_phase()
            if time.monotonic() > deadline:
                raise WorkFailed(
                    f"the server was not ready after {self.spec.engine.ready_timeout_s:g} s",
                    hint="see where it stands in the log; raise engine.ready_timeout_s for slow disks",
                )
            time.sleep(_POLL_S)
        self._check_capture()

    def tell_ready(self) -> None:
        """Tell the address and what answers there."""
        info = httpx.get(f"{self.url}/server_info", timeout=_HTTP_TIMEOUT_S).json()
        self.job.tell(
            ServerReady(
                url=self.url,
                engine=self.spec.engine.name,
                engine_version=str(info.get("version", "unknown")),
                model=self.spec.model,
                pid=self.process.pid,
                startup_s=time.monotonic() - self.started,
            )
        )

    def raise_if_dead(self) -> None:
        """Raise WorkFailed with the reason that the log gives when the engine's process is gone."""
        code = self.process.poll()
        self._remember_family()
        if code is not None:
            raise explain_death(code, self._log_text())

    def stop(self) -> None:
        """Abort what runs, ask, wait a bounded time, kill the rest; nothing of the engine is left when this returns."""
        self._remember_family()
        with suppress(httpx.HTTPError):
            httpx.post(f"{self.url}/abort_request", json={"abort_all": True}, timeout=_HTTP_TIMEOUT_S)
        with suppress(ProcessLookupError):
            self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_DRAIN_S)
        self._remember_family()
        survivors = [process for process in self._family.values() if process.is_running()]
        for process in survivors:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        _, left = psutil.wait_procs(survivors, timeout=_KILL_S)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_S)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            raise WorkFailed(f"processes of the engine survive SIGKILL: {pids}", hint="the host needs a restart")

    def _remember_family(self) -> None:
        """Processes are remembered while they have their parent: a scheduler that loses it is no descendant any more."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process().children(recursive=True):
                self._family[process.pid] = process

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", timeout=_HTTP_TIMEOUT_S).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _tell_phase(self) -> None:
        text = self._log_text()
        phase: _Phase = "launching"
        for needle, name in _MILESTONES:
            if needle in text:
                phase = name
        if phase != self._phase:
            self._phase = phase
            self.job.tell(ServerPhase(phase=phase, elapsed_s=time.monotonic() - self.started))

    def _log_text(self) -> str:
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self.log_offset)
            return file.read().decode(errors="replace")

    def _check_capture(self) -> None:
        capture = self.spec.capture
        if capture is None:
            return
        spool = Path(capture.spool_directory)
        for path in sorted(spool.glob("error-rank*.json")):
            raise WorkFailed(f"the capture plugin failed: {json.loads(path.read_bytes())['error']}")
        if not any(spool.glob("ready-rank*.json")):
            raise WorkFailed(
                "the server is ready but its capture plugin is not",
                hint="is this SGLang 0.5.23? The log says which plugins it loaded",
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def _check_inputs(spec: ServerSpec) -> None:
    if spec.drafter is not None and not (Path(spec.drafter.model) / "config.json").is_file():
        raise Precondition(f"there is no drafter at {spec.drafter.model} (no config.json)", hint="train it first")
    if spec.capture is not None:
        spool = Path(spec.capture.spool_directory)
        spool.mkdir(parents=True, exist_ok=True)
        for stale in spool.iterdir():
            stale.unlink()


@contextmanager
def _running(spec: ServerSpec, job: JobContext) -> Iterator[Engine]:
    engine = Engine(spec, job)
    try:
        yield engine
    finally:
        job.tell(ServerPhase(phase="stopping", elapsed_s=time.monotonic() - engine.started))
        engine.stop()


def work(spec: ServerSpec, job: JobContext) -> JobResult:
    """Serve until the job is asked to stop; the engine's own death is a failure."""
    _check_inputs(spec)
    with _running(spec, job) as engine:
        engine.wait_until_ready()
        engine.tell_ready()
        while not job.stop_requested.wait(1.0):
            engine.raise_if_dead()
    raise Stopped


if __name__ == "__main__":
    main(ServerSpec, work)
