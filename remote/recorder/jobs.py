"""What the recorder reads of the jobs: their processes, their pace, the servers that they run and the devices that they were given."""

from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from remote.jobs.logs import ProgressReader
from remote.jobs.store import JobStore
from remote.pipeline.layout import lay_out
from remote.protocol.jobs import Job, Orphaned, Paused, Running, Stalled, Stopping, has_its_devices, is_over
from remote.protocol.progress import ServerReady, ServerRestarting
from remote.protocol.specs import ExtractionSpec, MappingCopySpec, RunSpec, Spec, TrainingSpec, VocabularySpec
from remote.protocol.telemetry import JobSample, RankSample
from remote.telemetry.engine import EngineEndpoint
from remote.telemetry.mounts import mount_point
from remote.telemetry.pace import Pace
from remote.telemetry.processes import JobProcesses, ProcessReader
from remote.telemetry.run_need import RunNeed

RECORDER = "recorder"
"""The agent of the recorder's own job."""

_PAGE = 2000
_CATCH_UP = 200
"""Records before the present one that are read when a job is met for the first time: enough for its pace."""


class JobsReading(NamedTuple):
    """The jobs at work: their samples, running servers, whose each device is, and the directories that they write to; and those that are over."""

    samples: list[JobSample]
    endpoints: list[EngineEndpoint]
    owners: dict[int, str]
    paths: list[Path]
    ended: list[Job]

    @property
    def is_idle(self) -> bool:
        """Whether no job but the recorder is at work."""
        return not self.samples


class _Watched:
    """What is remembered of a job between two readings."""

    def __init__(self, path: Path, progress_seq: int) -> None:
        self.pace = Pace()
        self.need = RunNeed()
        self.ready: ServerReady | None = None
        self._reader = ProgressReader(path, 0)
        self._skip_to = progress_seq - _CATCH_UP

    def catch_up(self) -> None:
        while records := self._reader.read(_PAGE):
            for record in records:
                match record.event:
                    case ServerReady() as ready:
                        self.ready = ready
                    case ServerRestarting():
                        self.ready = None
                    case _:
                        pass
                self.need.take(record.event)
                if record.seq > self._skip_to:
                    self.pace.take(record)


class JobReader:
    """Reads the jobs of a store; not for several threads."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._processes = ProcessReader()
        self._watched: dict[str, tuple[int, _Watched]] = {}
        self._mounts: dict[Path, str] = {}

    def read(self, now: float) -> JobsReading:
        """A reading at `now` (seconds since the epoch); samples are of jobs that are not over."""
        known = [job for job in self._store.list() if job.agent != RECORDER]
        jobs = [job for job in known if not is_over(job.state)]
        leaders = {job.job_id: pid for job in jobs if (pid := _pid_of(job)) is not None}
        processes = self._processes.read(leaders) if leaders else {}
        watched = {job.job_id: self._watch(job) for job in jobs}
        self._watched = watched
        samples = [
            self._sample(job, watched[job.job_id][1].pace, processes.get(job.job_id, JobProcesses([], {})), now)
            for job in jobs
        ]
        own = {sample.job_id: sample.bytes_left for sample in samples}
        return JobsReading(
            samples=[_with_run_need(sample, watched[sample.job_id][1].need, own) for sample in samples],
            endpoints=[
                EngineEndpoint(job_id=job_id, engine=ready.engine, url=ready.url)
                for job_id, (_, seen) in watched.items()
                if (ready := seen.ready) is not None
            ],
            owners={index: job.job_id for job in jobs if has_its_devices(job.state) for index in job.gpus},
            paths=[path for job in jobs if job.spec is not None for path in written_by(job.spec, self._store.root)],
            ended=[job for job in known if is_over(job.state)],
        )

    def _watch(self, job: Job) -> tuple[int, _Watched]:
        seq, watched = self._watched.get(job.job_id, (-1, None))
        if watched is None:
            watched = _Watched(self._store.directory(job.job_id) / "progress.jsonl", job.progress_seq)
        if seq != job.progress_seq:
            watched.catch_up()
        return job.progress_seq, watched

    def _sample(self, job: Job, pace: Pace, processes: JobProcesses, now: float) -> JobSample:
        written = written_by(job.spec, self._store.root) if job.spec is not None else []
        reading = pace.read(now)
        if isinstance(job.state, Paused):
            reading = reading._replace(activity="paused")
        return JobSample(
            job_id=job.job_id,
            agent=job.agent,
            run_id=job.run_id,
            process_count=len(processes.members),
            cpu_utilization=processes.cpu_utilization,
            memory_bytes=sum(member.memory_bytes for member in processes.members),
            ranks=ranks_of(processes, job.gpus),
            suspended_pids=sorted(member.pid for member in processes.members if member.state in "Tt"),
            writes_to=self._mount_of(written[0]) if written else None,
            **reading._asdict(),
        )

    def _mount_of(self, path: Path) -> str:
        if path not in self._mounts:
            self._mounts[path] = str(mount_point(path))
        return self._mounts[path]


def _with_run_need(sample: JobSample, need: RunNeed, own: dict[str, int | None]) -> JobSample:
    left = need.bytes_left(own)
    return sample if left is None else replace(sample, bytes_left=left)


def written_by(spec: Spec, root: Path) -> list[Path]:
    """Where a job of `root` writes, its result first; a run, where its jobs do."""
    match spec:
        case RunSpec(run=run):
            return [lay_out(run, root).directory]
        case ExtractionSpec(store=store, capture=capture):
            return [Path(store), Path(capture.spool_directory)]
        case TrainingSpec(checkpoints=checkpoints, drafter=drafter):
            return [Path(checkpoints), Path(drafter)]
        case VocabularySpec(mapping=mapping):
            return [Path(mapping)]
        case MappingCopySpec(destination=destination):
            return [Path(destination)]
        case _:
            return []


def ranks_of(processes: JobProcesses, gpus: list[int]) -> list[RankSample]:
    """The equal processes of a job in their order, each with its device where the job was given one for each."""
    ranked = sorted((member.rank, member) for member in processes.members if member.rank is not None)
    return [
        RankSample(
            rank=rank,
            pid=member.pid,
            state=member.state,
            cpu_utilization=processes.busy_cores.get(member.pid),
            gpu_index=gpus[rank] if rank < len(gpus) else None,
        )
        for rank, member in ranked
    ]


def _pid_of(job: Job) -> int | None:
    match job.state:
        case Running(pid=pid) | Stalled(pid=pid) | Paused(pid=pid) | Stopping(pid=pid) | Orphaned(pid=pid):
            return pid
        case _:
            return None
