"""The server agent's work: launch the engine, tell when it is ready, keep it until a stop is asked for, leave nothing behind."""

import json
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from remote.agents.harness import JobContext, Stopped, main
from remote.agents.server.contract import HOST, EngineCommand, EngineKind, Phase
from remote.agents.server.drafter import Expectations, check_drafter
from remote.agents.server.engine import Engine
from remote.agents.server.http import ask, free_port
from remote.agents.server.options import complaints, read_options
from remote.agents.server.plan import KINDS, engine_command, read_model_config
from remote.agents.server.restarts import Restarts
from remote.agents.server.startup import explain_death, later_phase
from remote.artifacts.mapping_validation import read_mapping
from remote.errors import Precondition, WorkFailed
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Note, ServerPhase, ServerReady, ServerRestarting
from remote.protocol.specs import Capture, ServerSpec

_POLL_S = 0.2
_NOTE_S = 5.0
_PROOF_S = 30.0
_OTHER_RANKS_S = 30.0
_LOG_BYTES = 256 << 10
_SPOOL_FILES = ("roost-*.safetensors", "*.part", "ready-rank*.json", "error-rank*.json", "waiting-rank*.json")


def work(spec: ServerSpec, job: JobContext) -> JobResult:
    """Serve until a stop is asked for, also after a death if the spec says so.

    Raises Precondition before the launch, WorkFailed when the engine ends by itself, Stopped before it serves.
    """
    model_config = read_model_config(spec.model)
    _check_drafter(spec, model_config, job)
    if spec.capture is not None:
        spool = Path(spec.capture.spool_directory)
        job.write_with_room(spool, None, lambda: _clear(spool))
    restarts, port = Restarts(spec.engine.restarts), free_port()
    while True:
        launch = _launch(spec, job, port, model_config)
        try:
            ready = launch.wait_until_ready(restarts.total)
            launch.engine.note_descendants()  # it may be killed before the first look while it serves
            job.tell(ready)
            launch.serve()
        except Died as death:
            pause = restarts.pause_after(launch.elapsed_s() - ready.startup_s)
            if pause is None:
                raise WorkFailed(_last_words(death, restarts), hint=death.info.hint) from death
            told = ServerRestarting(
                reason=death.info.message, restart=restarts.in_a_row, most=restarts.most, pause_s=pause
            )
        else:
            summary = {"url": ready.url, "startup_s": ready.startup_s, "served_s": launch.elapsed_s() - ready.startup_s}
            return JobResult(summary={**summary, "restarts": restarts.total})
        finally:
            launch.tell("stopping")
            launch.engine.stop()
        job.tell(told)
        if job.stop_requested.wait(pause):
            raise Stopped
        port = free_port(port)


def _launch(spec: ServerSpec, job: JobContext, port: int, model_config: dict[str, Any]) -> "Launch":
    kind = KINDS[spec.engine.name]
    command = engine_command(spec, python=sys.executable, port=port, model_config=model_config)
    _check_options(command, kind, job)
    # What the engine logs on its way up is how it is known to be ready: without room for that it is not launched.
    job.write_with_room(job.directory / "out.log", _LOG_BYTES, lambda: print(" ".join(command.argv), flush=True))  # noqa: T201
    return Launch(spec, job, Engine(command, f"http://{HOST}:{port}", job.directory / "out.log", drop=kind.drop), kind)


def _last_words(death: "Died", restarts: Restarts) -> str:
    if not restarts.most:
        return death.info.message
    times = "once" if restarts.in_a_row == 1 else f"{restarts.in_a_row} times"
    return f"launched again {times} and dead again: {death.info.message}"


class Died(WorkFailed):
    """The engine ended by itself while it served."""


class Launch:
    """One launch of an engine, from the command to the end."""

    def __init__(self, spec: ServerSpec, job: JobContext, engine: Engine, kind: EngineKind) -> None:
        self.spec = spec
        self.job = job
        self.engine = engine
        self._kind = kind
        self._began = time.monotonic()
        self._read = 0
        self._phase: Phase = "launching"
        self.tell(self._phase)

    def elapsed_s(self) -> float:
        """Seconds since the launch."""
        return time.monotonic() - self._began

    def tell(self, phase: Phase) -> None:
        """Tell the job's progress that the launch entered `phase`."""
        self.job.tell(ServerPhase(phase=phase, elapsed_s=self.elapsed_s()))

    def wait_until_ready(self, restarts: int) -> ServerReady:
        """Wait for the engine's own word and its answer; raises Stopped, or WorkFailed when it dies or takes too long.

        `restarts` is how many launches of the same server there were before.
        """
        up = False
        while not (up and self._answers()):
            if self.job.stop_requested.wait(_POLL_S):
                raise Stopped
            if (code := self.engine.exit_code()) is not None:
                self._fail(code)
            up |= self._follow_log()
            if self.elapsed_s() > self.spec.engine.ready_timeout_s:
                raise WorkFailed(
                    f"the engine was not ready after {self.spec.engine.ready_timeout_s:.0f} s (phase {self._phase})",
                    hint=f"look at the log; raise {self.spec.section}.ready_timeout_s if it was still loading",
                )
        if self.spec.capture is not None:
            self._check_capture(self.spec.capture)
        return self._ready(restarts)

    def serve(self) -> None:
        """Return when a stop is asked for; raises Died when the engine dies before."""
        noted_at = 0.0
        while not self.job.stop_requested.wait(_POLL_S):
            code = self.engine.exit_code()
            if code is not None:
                # What it said on its way up did not keep it from serving.
                message, hint = explain_death(
                    code, self.engine.log_tail(self._read), self._kind.causes, self.spec.section
                )
                raise Died(f"while it was serving, {message}", hint=hint)
            if self.elapsed_s() - noted_at > _NOTE_S:
                self.engine.note_descendants()
                noted_at = self.elapsed_s()

    def _follow_log(self) -> bool:
        text, self._read = self.engine.log_lines(self._read)
        phase = later_phase(self._phase, text, self._kind.milestones)
        if phase != self._phase:
            self._phase = phase
            self.tell(phase)
        if any(mark in text for mark in self._kind.hopeless):
            self._fail(None)
        return self._kind.up in text

    def _fail(self, code: int | None) -> NoReturn:
        message, hint = explain_death(code, self.engine.log_tail(0), self._kind.causes, self.spec.section)
        raise WorkFailed(f"before it was ready, {message}", hint=hint)

    def _answers(self) -> bool:
        return ask(self.engine.url, self._kind.proof, timeout_s=_PROOF_S) is not None

    def _check_capture(self, capture: Capture) -> None:
        spool = Path(capture.spool_directory)
        errors = sorted(spool.glob("error-rank*.json"))
        if errors:
            said = json.loads(errors[0].read_bytes())["error"]
            raise WorkFailed(f"the capture plugin failed: {said}", hint="the log has the traceback")
        expected = [spool / f"ready-rank{rank}.json" for rank in range(self.spec.engine.tensor_parallel_size)]
        missing = [path.name for path in expected if not path.exists()]
        late = time.monotonic() + _OTHER_RANKS_S
        # The rank that answers is the first, the others may still be within the same pass. Without any there is no plugin.
        while 0 < len(missing) < len(expected) and time.monotonic() < late:
            time.sleep(_POLL_S)
            missing = [path.name for path in expected if not path.exists()]
        if missing:
            raise WorkFailed(
                f"the server answers, but its capture plugin is not at work: no {', '.join(missing)} in {spool}",
                hint="the log says why the engine did not load it",
            )

    def _ready(self, restarts: int) -> ServerReady:
        return ServerReady(
            url=self.engine.url,
            engine=self.spec.engine.name,
            engine_version=self._version(),
            model=self.spec.model,
            pid=self.engine.pid,
            startup_s=self.elapsed_s(),
            restarts=restarts,
        )

    def _version(self) -> str:
        answer = ask(self.engine.url, self._kind.version, timeout_s=30.0)
        return "unknown" if answer is None else str(json.loads(answer).get("version", "unknown"))


def _check_drafter(spec: ServerSpec, model_config: dict[str, Any], job: JobContext) -> None:
    """Refuse what the engine would serve badly without a word; raises Precondition."""
    drafter = spec.drafter
    if drafter is None:
        return
    model = Path(drafter.model)
    if not (model / "config.json").is_file() or not any(model.glob("*.safetensors")):
        raise Precondition(
            f"there is no drafter at {model} (config.json and *.safetensors)", hint="train one, or correct the path"
        )
    expected = Expectations(
        target_config=model_config,
        context_length=spec.engine.context_length,
        speculation=drafter.speculation,
        engine=spec.engine.name,
        section=spec.section,
        layer_ids=drafter.layer_ids,
        mapping=None if drafter.mapping is None else read_mapping(Path(drafter.mapping)),
    )
    findings = check_drafter(model, expected)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        said = "; ".join(f"{finding.message} [{finding.code}]" for finding in errors)
        raise Precondition(f"the drafter {model} must not be served so: {said}", hint=errors[0].fix)
    for finding in findings:
        job.tell(Note(level="warning", text=f"the drafter: {finding.message} ({finding.fix})"))


def _check_options(command: EngineCommand, kind: EngineKind, job: JobContext) -> None:
    """Refuse what the engine would refuse after minutes; raises Precondition."""
    known = read_options(command, kind, job.root / "engines")
    wrong = complaints(command.flags, known)
    if wrong:
        raise Precondition(" ".join(wrong), hint=f"correct {command.section}.flags in the run file")


def _clear(spool: Path) -> None:
    """Empty the spool: leftovers of an earlier server would be taken for this one's."""
    spool.mkdir(parents=True, exist_ok=True)
    for pattern in _SPOOL_FILES:
        for leftover in spool.glob(pattern):
            leftover.unlink()


if __name__ == "__main__":
    main(ServerSpec, work)
