"""One trial of a tuning: a server with its settings, measured, and the measurement kept."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.agents.evaluation.provenance import devices
from remote.agents.harness import JobContext
from remote.agents.server.options import identify
from remote.agents.server.plan import KINDS, engine_command, read_model_config
from remote.artifacts.atomic import write_atomic
from remote.artifacts.manifest import hash_file, verify
from remote.pipeline.children import Children, Seen, failure
from remote.pipeline.fingerprints import combine
from remote.pipeline.inputs import describe_target
from remote.protocol.benchmark import BenchmarkLevel, BenchmarkReport
from remote.protocol.progress import ServerReady, TrialState
from remote.protocol.run import BenchmarkConfig
from remote.protocol.specs import BenchmarkSpec, ServerSpec

_REPORT = "report.json"
_SMALL_BYTES = 64 << 10


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement on disk, so that a tuning that is started again does not repeat it."""

    report: BenchmarkReport
    benchmark_job_id: str

    @property
    def level(self) -> BenchmarkLevel:
        """The only one: a tuning measures one number of requests at a time."""
        return self.report.levels[0]


class Launch(NamedTuple):
    """One server of the tuning: which trial, in which round, and whether it is measured for the second time there."""

    trial: int
    round: int
    again: bool = False

    @property
    def name(self) -> str:
        """Names its jobs."""
        return f"t{self.trial}-r{self.round}{'-again' if self.again else ''}"


class Trials:
    """Serves and measures, one trial at a time, with the prompts of one file; keeps what it measured in `directory`."""

    def __init__(self, children: Children, job: JobContext, directory: Path, prompts: Path, *, python: str) -> None:
        self._children = children
        self._job = job
        self._directory = directory
        self._prompts = prompts
        self._python = python
        self._engines: dict[str, str] = {}
        self._devices = devices()
        self.prompts_sha256 = hash_file(prompts)

    def known(self, launch: Launch, spec: ServerSpec, settings: BenchmarkConfig) -> Kept | None:
        """What an earlier job measured of the same launch: the same model, drafter, engine, devices and prompts.

        Raises Precondition where the engine cannot say what it is, NotFound or Precondition where the model cannot be read.
        """
        return _read(self._path(launch, spec, settings))

    def measure(
        self, launch: Launch, spec: ServerSpec, settings: BenchmarkConfig, tell: Callable[[TrialState], None]
    ) -> Kept:
        """The figures of a launch, which are kept; its server has ended in any case.

        Raises WorkFailed where the server or the benchmark fails, Precondition where they cannot begin, Stopped.
        """
        tell("launching")
        server = self._children.start(f"{launch.name}-server", spec)
        try:
            url = self._follow_server(server)
            self._children.depend_on(server)
            tell("measuring")
            kept = self._benchmark(
                f"{launch.name}-benchmark",
                BenchmarkSpec(
                    url=url, server_job_id=server, server=spec, prompts=str(self._prompts), benchmark=settings
                ),
            )
        finally:
            self._children.stop(server, "it is measured")
        keep(self._path(launch, spec, settings), kept, self._job)
        return kept

    def _path(self, launch: Launch, spec: ServerSpec, settings: BenchmarkConfig) -> Path:
        measured = [describe_target(Path(spec.model)).fingerprint, _drafter(spec), self._engine(spec), self._devices]
        # What mends a server does not change what it is.
        spec = msgspec.structs.replace(spec, section="engine")
        mark = combine("trial", spec, measured, settings, self.prompts_sha256, launch.round, launch.again)
        return self._directory / f"{mark}.json"

    def _engine(self, spec: ServerSpec) -> str:
        """Which installation serves: the figures of another version are another's. Raises Precondition."""
        command = engine_command(spec, python=self._python, port=0, model_config=read_model_config(spec.model))
        interpreter = command.launcher[0]
        if interpreter not in self._engines:
            self._engines[interpreter] = identify(command, KINDS[spec.engine.name])
        return self._engines[interpreter]

    def _follow_server(self, job_id: str) -> str:
        ready: list[ServerReady] = []

        def see(seen: Seen) -> bool:
            ready.extend(event for event in seen.events if isinstance(event, ServerReady))
            return bool(ready)

        self._children.follow(job_id, see)
        if not ready:
            raise failure(job_id, "the server ended before it was ready")
        return ready[-1].url

    def _benchmark(self, name: str, spec: BenchmarkSpec) -> Kept:
        job_id = self._children.start(name, spec)
        done = self._children.follow(job_id, lambda _: False)
        if done.result is None or not done.result.outputs:
            raise failure(job_id, "it brought no figures")
        directory = Path(done.result.outputs[0].path)
        verify(directory)
        report = msgspec.json.decode((directory / _REPORT).read_bytes(), type=BenchmarkReport)
        return Kept(report=report, benchmark_job_id=job_id)


def _drafter(spec: ServerSpec) -> str | None:
    """What the drafter is, so that one that was trained again is measured again."""
    manifest = None if spec.drafter is None else Path(spec.drafter.model) / "manifest.json"
    return hash_file(manifest) if manifest is not None and manifest.is_file() else None


def keep(path: Path, kept: Kept, job: JobContext) -> None:
    """Write a measurement; on a full disk the tuning waits with it until there is room."""
    data = msgspec.json.encode(kept)

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)

    job.write_with_room(path, len(data) + _SMALL_BYTES, write)


def _read(path: Path) -> Kept | None:
    """A measurement that was kept, if it has this release's form."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None
