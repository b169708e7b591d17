"""Everything that the screen knows of a host; `HostState.apply` is the one place where it changes.

`now` is the console's monotonic clock in seconds; host times are seconds since the epoch.
"""

from typing import NamedTuple

from console.state.link import Closed, Connecting, LinkState, Lost, Up
from console.state.logs import LogBuffer
from console.state.readings import Readings
from console.state.series import Series
from remote.protocol.frames import (
    ApprovalsWaiting,
    Event,
    Heartbeat,
    JobChanged,
    LogData,
    LogTruncated,
    ProgressMade,
    Telemetry,
)
from remote.protocol.jobs import Finished, Job, Paused, Queued, Running, Starting, Stopping, is_over
from remote.protocol.jobs import Lost as LostJob
from remote.protocol.notifications import Notification
from remote.protocol.progress import (
    STAGES,
    ArmAdvanced,
    CheckpointSaved,
    DrafterMeasured,
    ExtractionAdvanced,
    ExtractionPlanned,
    Note,
    ProgressRecord,
    SampleQuarantined,
    StageChanged,
    StageFailed,
    StageName,
    StagePending,
    StageRunning,
    StageState,
    StepLogged,
    TrainingPhase,
)
from remote.protocol.requests import Welcome
from remote.protocol.telemetry import GpuTopology, JobSample, TelemetryHistory, TelemetrySample

RECORDER = "recorder"
"""The agent of the job that takes the readings: it is always there."""

STALE_S = 5.0
"""A host that beats every second and has not been heard for longer is shown as silent, before its link counts as lost."""

_CLOCK_SET_BACK_S = 60.0
"""A reading that is older than the one before by less came late and is passed over; by more, the host's clock was set back."""

_MOST_QUARANTINED = 200
"""So many of a job's quarantined samples are kept, the newest."""

_MOST_STEPS = 4000
"""So many of a training's logged steps are kept."""

_LOG_TAIL_BYTES = 262_144
"""A log that is opened for the first time starts this far from its end."""


class JobNote(NamedTuple):
    """A note of a job, with its time on the host's clock."""

    at: float
    job_id: str
    note: Note


class LoggedStep(NamedTuple):
    """A step of a training, with its time on the host's clock."""

    at: float
    step: StepLogged


class LoggedMeasurement(NamedTuple):
    """What a training measured of its drafter, with its time on the host's clock."""

    at: float
    measured: DrafterMeasured


class LoggedCheckpoint(NamedTuple):
    """A checkpoint that a training wrote, with its time on the host's clock."""

    at: float
    saved: CheckpointSaved


class Curves:
    """What a training tells as it goes: loss and accuracy of the first draft token as series, every logged step, measurement, and
    checkpoint by its step. At `pruned_at` (the host's clock) it removed the checkpoints that are not kept.

    Of very many steps those in between are forgotten, evenly, so that the first one and the newest stay.
    """

    def __init__(self) -> None:
        self.loss = Series(_MOST_STEPS)
        self.accuracy = Series(_MOST_STEPS)
        self.steps: list[LoggedStep] = []
        self.measured: list[LoggedMeasurement] = []
        self.checkpoints: dict[int, LoggedCheckpoint] = {}
        self.pruned_at: float | None = None
        self.last: StepLogged | None = None

    def take(self, at: float, event: StepLogged | DrafterMeasured | CheckpointSaved | TrainingPhase) -> None:
        """Take in what it told at a moment on the host's clock."""
        match event:
            case StepLogged():
                self._add(at, event)
            case DrafterMeasured():
                self.measured.append(LoggedMeasurement(at, event))
            case CheckpointSaved():
                self.checkpoints[event.step] = LoggedCheckpoint(at, event)
            case TrainingPhase(phase="step"):
                # It prunes right before it goes on with its steps.
                self.pruned_at = at
            case TrainingPhase():
                pass

    def _add(self, at: float, step: StepLogged) -> None:
        self.last = step
        self.loss.append(step.loss)
        self.accuracy.append(step.accuracy[0] if step.accuracy else None)
        self.steps.append(LoggedStep(at, step))
        if len(self.steps) > _MOST_STEPS:
            del self.steps[1:-1:2]


class HostState:
    """One host as the console sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.link: LinkState = Connecting(attempt=1, since=0.0)
        self.welcome: Welcome | None = None
        self.jobs: dict[str, Job] = {}
        self.jobs_known = False
        self.sample: TelemetrySample | None = None
        self.sample_at: float | None = None
        self._host_clock: tuple[float, float] | None = None
        self.readings = Readings()
        self.topology: GpuTopology | None = None
        self.approvals: ApprovalsWaiting | None = None
        self.looked_at: frozenset[str] = frozenset()
        """Jobs whose progress a page wants besides."""
        self.stages: dict[str, dict[StageName, StageState]] = {}
        self.progress_seq: dict[str, int] = {}
        self.curves: dict[str, Curves] = {}
        self.arms: dict[str, ArmAdvanced] = {}
        self.extraction: dict[str, ExtractionAdvanced] = {}
        self.extraction_plans: dict[str, ExtractionPlanned] = {}
        self.quarantined: dict[str, list[SampleQuarantined]] = {}
        self.notes: list[JobNote] = []
        self.raised: dict[str, Notification] = {}
        self.logs: dict[str, LogBuffer] = {}

    def apply(self, event: LinkState | Event | TelemetryHistory | GpuTopology, now: float) -> None:
        """Take in one event, or the answer to a question."""
        match event:
            case TelemetryHistory(samples=samples):
                for sample in samples:
                    self.readings.add(sample)
            case GpuTopology():
                self.topology = event
            case _:
                self._apply_event(event, now)

    def _apply_event(self, event: LinkState | Event, now: float) -> None:
        match event:
            case Up(welcome=welcome):
                self.link, self.welcome = event, welcome
            case Connecting() | Lost() | Closed():
                self.link = event
            case Telemetry(sample=sample):
                self._apply_sample(sample, now)
            case Heartbeat(at=at):
                self._host_clock = (at, now)
            case JobChanged(job=job):
                self.jobs[job.job_id] = job
                self.readings.marks.add_pause(job)
            case ProgressMade(job_id=job_id, record=record):
                self._apply_progress(job_id, record)
            case LogData(job_id=job_id, offset=offset, data=data) if job_id in self.logs:
                self.logs[job_id].append(offset, data)
            case LogTruncated(job_id=job_id, start=start) if job_id in self.logs:
                self.logs[job_id].truncated(start)
            case ApprovalsWaiting():
                self.approvals = event
            case _:
                pass

    def host_now(self, now: float) -> float | None:
        """The host's own clock, seconds since the epoch: its times are only compared with each other; None before it spoke."""
        if self._host_clock is None:
            return None
        at, heard_at = self._host_clock
        return at + (now - heard_at)

    def news_of(self, sample: TelemetrySample) -> list[Notification]:
        """What a reading tells people that none before it told."""
        return [each for each in sample.notifications if each.notification_id not in self.raised]

    def sample_of(self, job: Job) -> JobSample | None:
        """What the newest reading says of a job."""
        jobs = self.sample.jobs if self.sample is not None else []
        return next((each for each in jobs if each.job_id == job.job_id), None)

    def silence_s(self, now: float) -> float | None:
        """How long ago the host's last heartbeat came; None before the first, and before the first on this link."""
        if self._host_clock is None or not isinstance(self.link, Up) or self.link.since > self._host_clock[1]:
            return None
        return now - self._host_clock[1]

    def set_jobs(self, jobs: list[Job]) -> None:
        """Take in the host's whole list of jobs."""
        self.jobs = {job.job_id: job for job in jobs}
        self.jobs_known = True
        for job in jobs:
            self.readings.marks.add_pause(job)

    def log_of(self, job_id: str) -> LogBuffer:
        """The log of a job, begun near its end when it is asked for the first time."""
        if job_id not in self.logs:
            job = self.jobs.get(job_id)
            size, start = (job.log_size, job.log_start) if job is not None else (0, 0)
            cursor = max(start, size - _LOG_TAIL_BYTES)
            self.logs[job_id] = LogBuffer(cursor, left_out=cursor - start)
        return self.logs[job_id]

    def ordered_jobs(self) -> list[Job]:
        """Runs and lone jobs, newest first; what a run started stands under it, newest first."""
        starts = {job.job_id: job.created_at for job in self.jobs.values()}

        def place(job: Job) -> tuple[float, str, bool, float, str]:
            head = job.run_id if job.run_id in starts else job.job_id
            return (-starts[head], head, job.job_id != head, -job.created_at, job.job_id)

        return sorted(self.jobs.values(), key=place)

    def shown_jobs(self) -> list[Job]:
        """The jobs that a person should see, in their order: without a recorder that does its work, and older recorders."""
        jobs = self.ordered_jobs()
        newest = next((job for job in jobs if job.agent == RECORDER), None)
        return [job for job in jobs if job.agent != RECORDER or (job is newest and not _is_well(job))]

    def newest_run(self) -> Job | None:
        """The run that the stage strip shows."""
        runs = [job for job in self.jobs.values() if job.agent == "run"]
        return max(runs, key=lambda job: job.created_at, default=None)

    def children(self, run_id: str) -> list[Job]:
        """The jobs that a run started, oldest first."""
        return sorted((job for job in self.jobs.values() if job.run_id == run_id), key=lambda job: job.created_at)

    def stages_of(self, run_id: str) -> list[tuple[StageName, StageState]]:
        """All stages of a run in their order."""
        known = self.stages.get(run_id, {})
        run = self.jobs.get(run_id)
        return [(stage, _settled(known.get(stage, StagePending()), run)) for stage in STAGES]

    def time_left_s(self, job: Job) -> float | None:
        """What the run expects of the stage that `job` works for; None when it is over, waits or nothing is known."""
        if isinstance(job.state, Paused):
            return None
        for state in self.stages.get(job.run_id or "", {}).values():
            if isinstance(state, StageRunning) and state.job_id == job.job_id:
                return state.eta_s
        return None

    def wanted_progress(self) -> dict[str, int]:
        """Whose progress is to be streamed, and from where: the newest run, what it started, the newest training, extractions, and what is looked at."""
        run, training = self.newest_run(), self.newest_training()
        wanted = [] if run is None else [run, *self.children(run.job_id)]
        wanted += [] if training is None else [training]
        wanted += self.extractions_to_show()
        wanted += [self.jobs[job_id] for job_id in sorted(self.looked_at) if job_id in self.jobs]
        return {job.job_id: self.progress_seq.get(job.job_id, 0) for job in wanted}

    def newest_training(self) -> Job | None:
        """The training that was started last, by a run or by itself."""
        trainings = (job for job in self.jobs.values() if job.agent == "training")
        return max(trainings, key=lambda job: job.created_at, default=None)

    def extractions_to_show(self) -> list[Job]:
        """The newest run's extraction, and of those by themselves, oldest first, all at work and the newest that is over, unless a run came since."""
        run = self.newest_run()
        of_run = [] if run is None else [job for job in self.children(run.job_id) if job.agent == "extraction"]
        alone = sorted(
            (job for job in self.jobs.values() if job.agent == "extraction" and job.run_id is None),
            key=lambda job: job.created_at,
        )
        over = [job for job in alone if is_over(job.state) and (run is None or job.created_at > run.created_at)][-1:]
        return [*of_run[-1:], *(job for job in alone if not is_over(job.state) or job in over)]

    def training_curves(self) -> Curves | None:
        """The curves of the newest training, once it has told any."""
        training = self.newest_training()
        return None if training is None else self.curves.get(training.job_id)

    def _apply_sample(self, sample: TelemetrySample, now: float) -> None:
        if self.sample is not None and 0 < self.sample.sampled_at - sample.sampled_at < _CLOCK_SET_BACK_S:
            return
        self.sample, self.sample_at = sample, now
        self.raised |= {each.notification_id: each for each in sample.notifications}
        self._host_clock = (sample.sampled_at, now)
        self.readings.add(sample)

    def _apply_progress(self, job_id: str, record: ProgressRecord) -> None:
        if record.seq <= self.progress_seq.get(job_id, 0):
            return
        self.progress_seq[job_id] = record.seq
        match record.event:
            case StageChanged(stage=stage, state=state):
                self.stages.setdefault(job_id, {})[stage] = state
            case StepLogged() | DrafterMeasured() | CheckpointSaved() | TrainingPhase() as event:
                self.curves.setdefault(job_id, Curves()).take(record.at, event)
            case ArmAdvanced() as arm:
                self.arms[job_id] = arm
            case ExtractionAdvanced() as done:
                self.extraction[job_id] = done
            case ExtractionPlanned() as planned:
                self.extraction_plans[job_id] = planned
            case SampleQuarantined() as entry:
                self.quarantined.setdefault(job_id, []).append(entry)
                del self.quarantined[job_id][:-_MOST_QUARANTINED]
            case Note() as note:
                self.notes.append(JobNote(record.at, job_id, note))
            case _:
                pass


def _is_well(recorder: Job) -> bool:
    match recorder.state:
        case Queued() | Starting() | Running() | Stopping():
            return True
        case Finished(outcome=outcome):
            return outcome != "failed"
        case _:
            return False


def _settled(state: StageState, run: Job | None) -> StageState:
    """A stage that its run left at work, being killed for one, is at work no more."""
    if not isinstance(state, StageRunning) or run is None:
        return state
    match run.state:
        case Finished(ended_at=ended, reason=reason):
            return StageFailed(started_at=state.since, ended_at=ended, reason=f"the run ended: {reason}")
        case LostJob(reason=reason):
            return StageFailed(started_at=state.since, ended_at=state.since, reason=f"the run is lost: {reason}")
        case _:
            return state
