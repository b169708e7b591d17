"""What the plain stream says of a host, in sentences without signs: how things stand, and what has changed since it was asked last."""

from collections.abc import Iterable

from console.cli.text import state_words
from console.state.diagnoses import diagnosis_summary
from console.state.forecast import fullness, runway_words
from console.state.host import STALE_S, HostState
from console.state.link import Closed, Connecting, LinkState, Lost, Up
from console.state.progress_words import progress_words, stage_words
from console.state.sanitize import one_line
from console.state.units import format_bytes, format_duration, format_percent
from console.ui.words import run_name
from remote.protocol.jobs import Finished, Job, Queued, Running, Starting, Stopping, is_over
from remote.protocol.progress import STAGES, StageName, StagePending, StageRunning, StageState
from remote.protocol.telemetry import Diagnosis, TelemetrySample

CALM_S = 30.0
"""What goes on in the same way, or is missing in the same way, is said at most so often."""

_NO_READING_S = 10.0


class PlainWords:
    """Says each thing once; `now` is the console's monotonic clock in seconds. One for one stream of one host."""

    def __init__(self) -> None:
        self._link: tuple[object, float] = (None, 0.0)
        self._was_up = False
        self._lost_at: float | None = None
        self._is_silent = self._is_blind = False
        self._jobs: dict[str, tuple[object, ...]] | None = None
        self._stages: tuple[str, dict[StageName, type[StageState]]] = ("", {})
        self._paces: dict[tuple[str, object], tuple[float, str]] = {}
        self._diagnoses: dict[tuple[str, str], str] = {}
        self._notes = 0
        self._waiting = 0
        self._has_devices = False

    def changes(self, state: HostState, now: float) -> list[str]:
        """What is new since the last call, the link first."""
        said = [*self._of_link(state, now), *self._of_readings(state, now)]
        if state.jobs_known:
            said += [*self._of_stages(state, now), *self._of_jobs(state), *self._of_notes(state)]
            said += self._of_paces(state, now)
        return [*said, *self._of_diagnoses(state), *self._of_approvals(state)]

    def _of_link(self, state: HostState, now: float) -> Iterable[str]:
        link = state.link
        topic = (type(link), getattr(link, "reason", ""))
        before, at = self._link
        if isinstance(link, Connecting) and before is not None:
            return
        if topic == before and not (isinstance(link, Lost) and now - at >= CALM_S):
            return
        self._link = (topic, now)
        yield self._link_words(link, state.name, now, is_news=topic != before)
        if isinstance(link, Up):
            self._was_up, self._lost_at = True, None
        elif isinstance(link, Lost) and self._lost_at is None:
            self._lost_at = link.since

    def _link_words(self, link: LinkState, name: str, now: float, *, is_news: bool) -> str:
        match link:
            case Connecting():
                return f"Connecting to {name}."
            case Up(latency_s=latency) if not self._was_up:
                return f"Connected to {name}, round trip {latency * 1000:.0f} milliseconds."
            case Up():
                gap = "" if self._lost_at is None else f" after {format_duration(now - self._lost_at)}"
                return f"Connected to {name} again{gap}. Jobs went on."
            case Lost(reason=reason) if is_news:
                what = "The link is lost" if self._was_up else f"{name} is not reached"
                goes_on = " Jobs on the host go on." if self._was_up else ""
                return f"{what}: {one_line(reason).rstrip('.')}.{goes_on} It is tried again by itself."
            case Lost(since=since):
                return f"Still no connection to {name}, for {format_duration(now - since)}."
            case Closed():
                return "The link is closed."

    def _of_readings(self, state: HostState, now: float) -> Iterable[str]:
        silence = state.silence_s(now)
        is_silent = silence is not None and silence > STALE_S
        if is_silent != self._is_silent:
            self._is_silent = is_silent
            yield f"No word from {state.name} for {silence:.0f} s." if is_silent else f"{state.name} is heard again."
        is_blind = state.sample_at is not None and isinstance(state.link, Up) and now - state.sample_at > _NO_READING_S
        if is_blind != self._is_blind:
            self._is_blind = is_blind
            yield "No readings arrive." if is_blind else "Readings arrive again."
        if state.sample is not None and not self._has_devices:
            self._has_devices = True
            yield from device_words(state.sample)

    def _of_jobs(self, state: HostState) -> Iterable[str]:
        jobs = {job.job_id: job for job in state.shown_jobs()}
        topics = {job_id: _topic(job) for job_id, job in jobs.items()}
        before, self._jobs = self._jobs, topics
        if before is None:
            yield from job_words(state)
            return
        run = state.newest_run()
        for job_id in reversed(topics):
            job = jobs[job_id]
            is_told_by_its_stage = run is not None and job.run_id == run.job_id and _goes_as_its_run_wants(job)
            if before.get(job_id) == topics[job_id] or is_told_by_its_stage:
                continue
            started = "" if job_id in before else f" started by {one_line(job.created_by)},"
            yield f"{_name(job)}:{started} {state_words(job.state)}."
            yield from _verdict_words(job)

    def _of_stages(self, state: HostState, now: float) -> Iterable[str]:
        """Of the newest run, once what it told before this connection was heard."""
        run = state.newest_run()
        if run is None or state.progress_seq.get(run.job_id, 0) < run.progress_seq:
            return
        stages = dict(state.stages_of(run.job_id))
        run_id, before = self._stages
        self._stages = (run.job_id, {stage: type(each) for stage, each in stages.items()})
        if run_id != run.job_id:
            yield from _stages_so_far(run, stages)
            return
        for stage in STAGES:
            if type(stages[stage]) is not before[stage]:
                subject, words = f"{_name(run)}, {stage}", stage_words(stages[stage]).strip()
                self._paces[subject, stage] = (now, words)
                yield f"{subject}: {words}."

    def _of_notes(self, state: HostState) -> Iterable[str]:
        run = state.newest_run()
        for noted in state.notes[self._notes :]:
            job = state.jobs.get(noted.job_id)
            if noted.note.level != "info" and job is not None and run is not None and not is_over(run.state):
                yield f"{_name(job)} has a word of {noted.note.level}: {one_line(noted.note.text)}"
        self._notes = len(state.notes)

    def _of_paces(self, state: HostState, now: float) -> Iterable[str]:
        for (subject, topic), words in _paces(state):
            at, before = self._paces.get((subject, topic), (float("-inf"), ""))
            if words != before and now - at >= CALM_S:
                self._paces[subject, topic] = (now, words)
                yield f"{subject}: {words}."

    def _of_diagnoses(self, state: HostState) -> Iterable[str]:
        found = {} if state.sample is None else {(each.code, each.subject): each for each in state.sample.diagnoses}
        for key in self._diagnoses.keys() - found.keys():
            yield f"No longer: {self._diagnoses[key]}."
        for key, each in found.items():
            if key not in self._diagnoses:
                yield diagnosis_sentences(each)
        self._diagnoses = {key: diagnosis_summary(each).rstrip(".") for key, each in found.items()}

    def _of_approvals(self, state: HostState) -> Iterable[str]:
        waiting = 0 if state.approvals is None else state.approvals.count
        if waiting > self._waiting:
            yield approval_words(waiting)
        elif waiting < self._waiting:
            yield approval_words(waiting) if waiting else "No request waits for an answer any more."
        self._waiting = waiting


def standing(state: HostState, now: float) -> list[str]:
    """How things stand: the link, jobs at work and how they get on, devices, disks, alerts, and what waits for an answer."""
    said = [_standing_link(state, now)]
    if state.jobs_known:
        said += job_words(state)
        said += [f"{subject}: {words}." for (subject, _), words in _paces(state)]
    if state.sample is not None:
        said += device_words(state.sample)
        said += [diagnosis_sentences(each) for each in state.sample.diagnoses] or ["No alerts."]
    if state.approvals is not None and state.approvals.count:
        said.append(approval_words(state.approvals.count))
    return said


def _standing_link(state: HostState, now: float) -> str:
    match state.link:
        case Up(since=since):
            return f"Connected to {state.name} for {format_duration(now - since)}."
        case Lost(since=since) | Connecting(since=since) if state.welcome is None:
            return f"Not connected to {state.name} yet, for {format_duration(now - since)}."
        case Lost(since=since) | Connecting(since=since):
            return f"No connection to {state.name} for {format_duration(now - since)}; what follows is from before."
        case Closed():
            return f"The link to {state.name} is closed; what follows is from before."


def job_words(state: HostState) -> list[str]:
    """What is at work, and how the newest run ended where that is over."""
    jobs = state.shown_jobs()
    at_work = [f"{_name(job)}: {state_words(job.state)}." for job in reversed(jobs) if not is_over(job.state)]
    run = state.newest_run()
    ended = [] if run is None or not is_over(run.state) else [f"The newest {_name(run)}: {state_words(run.state)}."]
    return [*ended, *([] if run is None else _verdict_words(run)), *(at_work or ["No job is at work."])]


def device_words(sample: TelemetrySample) -> list[str]:
    """The devices in one sentence, or the processor where there are none, and each disk in another."""
    if sample.gpus:
        loads = [gpu.gpu_utilization for gpu in sample.gpus if gpu.gpu_utilization is not None]
        heats = [gpu.temperature_celsius for gpu in sample.gpus if gpu.temperature_celsius is not None]
        words = [f"{len(sample.gpus)}{' simulated' if sample.gpu_source == 'simulated' else ''} GPUs"]
        words += [f"{format_percent(sum(loads) / len(loads))} busy on average"] if loads else []
        words += [f"the hottest at {max(heats):.0f} degrees"] if heats else []
    else:
        loads = sample.host.cpu_utilization
        words = ["No GPU", f"{len(loads)} processor cores"]
        words += [f"{format_percent(sum(loads) / len(loads))} busy on average"] if loads else []
    disks = (
        f"Disk {one_line(mount.path)}: {format_percent(fullness(mount))} used, {format_bytes(mount.free_bytes)} free{runway}."
        for mount in sample.mounts
        for runway in [_after_comma(runway_words(mount, sample.jobs, is_short=False))]
    )
    return [f"{', '.join(words)}.", *disks]


def _after_comma(words: str) -> str:
    return f", {words}" if words else ""


def diagnosis_sentences(diagnosis: Diagnosis) -> str:
    """What is wrong, and what to do."""
    kind = "Alert, grave" if diagnosis.severity == "error" else "Alert"
    return f"{kind}: {diagnosis_summary(diagnosis).rstrip('.')}. {one_line(diagnosis.advice)}"


def approval_words(count: int) -> str:
    """What waits for a person."""
    waits = "1 request waits" if count == 1 else f"{count} requests wait"
    return f"{waits} for your answer: roost approvals list."


def _paces(state: HostState) -> Iterable[tuple[tuple[str, object], str]]:
    """How what is at work gets on: the newest run by its stage, what no run started by its own word; with whose and which word that is."""
    run = state.newest_run()
    if run is not None:
        for stage, stage_state in state.stages_of(run.job_id):
            if isinstance(stage_state, StageRunning):
                words = stage_words(stage_state).strip()
                yield (f"{_name(run)}, {stage}", stage), words
    for job in state.shown_jobs():
        if job.run_id is None and job.agent != "run" and job.last_progress is not None and not is_over(job.state):
            yield (_name(job), type(job.last_progress.event)), progress_words(job.last_progress.event)


def _stages_so_far(run: Job, stages: dict[StageName, StageState]) -> Iterable[str]:
    if is_over(run.state):
        return
    over = [stage for stage, each in stages.items() if not isinstance(each, StagePending | StageRunning)]
    if over:
        yield f"{_name(run)}, stages behind it: {', '.join(over)}."


def _verdict_words(job: Job) -> list[str]:
    summary = job.result.summary if job.agent == "run" and job.result is not None else {}
    decision, speedup, length = (summary.get(key) for key in ("decision", "speedup", "acceptance_length"))
    if not isinstance(decision, str):
        return []
    words = [decision]
    words += [f"{speedup:.2f} times as fast"] if isinstance(speedup, float) else []
    words += [f"acceptance length {length:.2f}"] if isinstance(length, float) else []
    return [f"Verdict of {_name(job)}: {', '.join(words)}. roost verdict {job.job_id} says why."]


def _name(job: Job) -> str:
    return f"run {run_name(job)}" if job.agent == "run" else f"{one_line(job.agent)} {job.job_id}"


def _topic(job: Job) -> tuple[object, ...]:
    """Another one whenever a job's state has become another in a way that matters."""
    return (type(job.state), getattr(job.state, "outcome", ""), getattr(job.state, "reason", ""))


def _goes_as_its_run_wants(job: Job) -> bool:
    match job.state:
        case Finished(outcome="stopped", reason=reason):
            return f"stopped by {job.run_id}" in reason
        case Finished(outcome=outcome):
            return outcome == "succeeded"
        case state:
            return isinstance(state, Queued | Starting | Running | Stopping)
