"""What a person should look at now; each alert says what, and where."""

from typing import NamedTuple

from console.state.diagnoses import diagnosis_summary, gravest_first
from console.state.host import RECORDER, HostState
from console.state.link import Closed, Lost, Up
from console.state.sanitize import one_line
from console.state.units import format_duration
from remote.protocol.jobs import Finished, Foreign, Orphaned, Paused, Quarantined, Stalled, Unkillable
from remote.protocol.jobs import Lost as LostJob

STALE_SAMPLE_S = 5.0


class Alert(NamedTuple):
    """A sentence, and whether somebody must act now."""

    text: str
    is_grave: bool

    def __str__(self) -> str:
        """The sentence after the mark of its severity, which is the same wherever it stands."""
        return f"{'✗' if self.is_grave else '!'} {self.text}"


def alerts(state: HostState, now: float) -> list[Alert]:
    """The alerts of a host, the gravest first: the link, what its recorder diagnosed, and jobs that want somebody."""
    found = gravest_first(state.sample.diagnoses) if state.sample else []
    told = [Alert(diagnosis_summary(each), each.severity == "error") for each in found]
    every = [*_link_alerts(state, now), *told, *_job_alerts(state)]
    return sorted(every, key=lambda alert: not alert.is_grave)


def _link_alerts(state: HostState, now: float) -> list[Alert]:
    match state.link:
        case Lost(since=since, reason=reason, retry_at=retry_at) if state.welcome is None:
            age, wait = format_duration(now - since), max(0.0, retry_at - now)
            return [Alert(f"not reached for {age}, next try in {wait:.0f} s ({one_line(reason)})", is_grave=True)]
        case Lost(since=since, reason=reason, retry_at=retry_at):
            wait = max(0.0, retry_at - now)
            age = format_duration(now - since)
            text = f"link lost {age} ago, next try in {wait:.0f} s, jobs on the host go on ({one_line(reason)})"
            return [Alert(text, is_grave=True)]
        case Closed(error=error) if error is not None:
            return [Alert(f"link closed: {one_line(error.message)}", is_grave=True)]
        case Up() if state.sample_at is not None and now - state.sample_at > STALE_SAMPLE_S:
            return [Alert(f"no reading for {format_duration(now - state.sample_at)}", is_grave=False)]
        case _:
            return []


def _job_alerts(state: HostState) -> list[Alert]:
    found: list[Alert] = []
    of_paused = {job.run_id for job in state.shown_jobs() if isinstance(job.state, Paused)}
    for job in state.shown_jobs():
        match job.state:
            case Stalled(heartbeat_age_s=age):
                found.append(Alert(f"{job.job_id}: no heartbeat for {format_duration(age)}", is_grave=False))
            case Paused() if job.job_id in of_paused:
                pass  # a run that waits for its job, which has said so
            case Paused(reason=reason):
                found.append(Alert(f"{job.job_id} is paused: {one_line(reason)}", is_grave=False))
            case Orphaned() | Foreign() | Unkillable() | Quarantined():
                grave = isinstance(job.state, Unkillable)
                found.append(Alert(f"{job.job_id} is {type(job.state).__name__.lower()}", grave))
            case Finished(outcome="failed") if _is_of_newest_run(state, job.job_id, job.run_id):
                found.append(Alert(f"{one_line(job.agent)} failed", is_grave=True))
            case LostJob() if _is_of_newest_run(state, job.job_id, job.run_id):
                found.append(Alert(f"{job.job_id} is lost", is_grave=True))
            case LostJob() | Finished() if job.agent == RECORDER:
                found.append(Alert("the recorder of readings has failed: its log says why", is_grave=False))
            case _:
                pass
    return found


def _is_of_newest_run(state: HostState, job_id: str, run_id: str | None) -> bool:
    run = state.newest_run()
    return run is not None and run.job_id in (job_id, run_id)
