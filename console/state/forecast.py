"""What will happen if things go on as they do."""

from console.state.units import format_bytes, format_duration, format_rate
from remote.protocol.telemetry import JobSample, MountSample

_NEGLIGIBLE_BYTES_PER_S = 1024.0


def runway_s(mount: MountSample) -> float | None:
    """Seconds until the disk is full at its present rate; None when it does not fill or the rate is not known."""
    rate = mount.fill_rate_bytes_per_s
    if rate is None or rate < _NEGLIGIBLE_BYTES_PER_S:
        return None
    return mount.free_bytes / rate


def seconds_needed(mount: MountSample, jobs: list[JobSample]) -> float | None:
    """How long the jobs that write to a disk will go on writing; None where none of them says."""
    times = [job.seconds_left for job in jobs if job.writes_to == mount.path and job.seconds_left is not None]
    return max(times, default=None)


def need_words(mount: MountSample, jobs: list[JobSample]) -> str:
    """What the jobs that write to a disk still need of it: ", the run still needs 2:51 h and 720 GiB"; empty where unknown."""
    seconds = seconds_needed(mount, jobs)
    sizes = [job.bytes_left for job in jobs if job.writes_to == mount.path and job.bytes_left is not None]
    needs = [] if seconds is None else [format_duration(seconds)]
    needs += [format_bytes(sum(sizes))] if sizes else []
    return f", the run still needs {' and '.join(needs)}" if needs else ""


def pace_words(job: JobSample) -> list[str]:
    """How fast a job goes, by what it counts itself."""
    pace = [format_rate(job.samples_per_s, "samples")] if job.samples_per_s is not None else []
    pace += [format_rate(job.tokens_per_s, "tok")] if job.tokens_per_s is not None else []
    return pace + ([f"{format_bytes(job.bytes_per_s)}/s"] if job.bytes_per_s is not None else [])
