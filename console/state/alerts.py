"""What a person should look at now; each alert says what, and where."""

from console.state.diagnoses import DEVICE_CODES, DISK_CODES, diagnosis_summary, gravest_first
from console.state.forecast import SHORT_RUNWAY_S, runway_s
from console.state.host import RECORDER, HostState
from console.state.link import Closed, Lost, Up
from console.state.sanitize import one_line
from console.state.units import format_duration
from remote.protocol.jobs import Finished, Foreign, Orphaned, Paused, Quarantined, Stalled, Unkillable
from remote.protocol.jobs import Lost as LostJob
from remote.protocol.telemetry import Diagnosis

STALE_SAMPLE_S = 5.0


def alerts(state: HostState, now: float) -> list[str]:
    """The alerts of a host, the gravest first: the link, what its recorder diagnosed, what only the console sees."""
    found = gravest_first(state.sample.diagnoses) if state.sample else []
    graves, others = ([each for each in found if (each.severity == "error") is grave] for grave in (True, False))
    return [
        *_link_alerts(state, now),
        *map(diagnosis_summary, graves),
        *_disk_alerts(state, found),
        *_device_alerts(state, found),
        *_job_alerts(state),
        *map(diagnosis_summary, others),
    ]


def _link_alerts(state: HostState, now: float) -> list[str]:
    match state.link:
        case Lost(since=since, reason=reason, retry_at=retry_at):
            wait = max(0.0, retry_at - now)
            age = format_duration(now - since)
            return [f"link lost {age} ago, next try in {wait:.0f} s, jobs on the host go on ({one_line(reason)})"]
        case Closed(error=error) if error is not None:
            return [f"link closed: {one_line(error.message)}"]
        case Up() if state.sample_at is not None and now - state.sample_at > STALE_SAMPLE_S:
            return [f"no reading for {format_duration(now - state.sample_at)}"]
        case _:
            return []


def _disk_alerts(state: HostState, diagnoses: list[Diagnosis]) -> list[str]:
    told = {each.subject for each in diagnoses if each.code in DISK_CODES}
    found: list[str] = []
    for mount in [mount for mount in (state.sample.mounts if state.sample else []) if mount.path not in told]:
        runway = runway_s(mount)
        if runway is not None and runway < SHORT_RUNWAY_S:
            found.append(f"{mount.path} is full in {format_duration(runway)} at the present rate")
    return found


def _device_alerts(state: HostState, diagnoses: list[Diagnosis]) -> list[str]:
    told = {each.subject for each in diagnoses if each.code in DEVICE_CODES}
    lost = [gpu for gpu in (state.sample.gpus if state.sample else []) if gpu.error is not None]
    names = [(f"GPU {gpu.gpu_index}", one_line(gpu.error or "")) for gpu in lost]
    return [f"{name}: {error}" for name, error in names if name not in told]


def _job_alerts(state: HostState) -> list[str]:
    found: list[str] = []
    for job in state.shown_jobs():
        match job.state:
            case Stalled(heartbeat_age_s=age):
                found.append(f"{job.job_id}: no heartbeat for {format_duration(age)}")
            case Paused(reason=reason):
                found.append(f"{job.job_id} is paused: {one_line(reason)}")
            case Orphaned() | Foreign() | Unkillable() | Quarantined():
                found.append(f"{job.job_id} is {type(job.state).__name__.lower()}")
            case LostJob() | Finished(outcome="failed") if _is_of_newest_run(state, job.job_id, job.run_id):
                found.append(
                    f"{one_line(job.agent)} failed" if isinstance(job.state, Finished) else f"{job.job_id} is lost"
                )
            case LostJob() | Finished() if job.agent == RECORDER:
                found.append("the recorder of readings has failed: its log says why")
            case _:
                pass
    return found


def _is_of_newest_run(state: HostState, job_id: str, run_id: str | None) -> bool:
    run = state.newest_run()
    return run is not None and run.job_id in (job_id, run_id)
