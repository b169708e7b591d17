"""What will happen if things go on as they do."""

from console.state.sanitize import one_line
from console.state.units import format_bytes, format_duration, format_rate
from remote.protocol.telemetry import JobSample, MountSample

_NEGLIGIBLE_BYTES_PER_S = 1024.0
_SOON_S, _DAY_S = 3600.0, 86_400.0
_FAR_S = 14 * _DAY_S


def fullness(mount: MountSample) -> float | None:
    """How full a disk is as `df` has it: what is used, of that and of what an ordinary user may still write; None for no disk.

    Blocks that are kept for root count as neither.
    """
    whole = mount.used_bytes + mount.free_bytes
    return mount.used_bytes / whole if whole > 0 else None


def runway_s(mount: MountSample) -> float | None:
    """Seconds until the disk is full at its present rate; None when it does not fill or the rate is not known."""
    rate = mount.fill_rate_bytes_per_s
    if rate is None or rate < _NEGLIGIBLE_BYTES_PER_S:
        return None
    return mount.free_bytes / rate


def runway_words(mount: MountSample, jobs: list[JobSample], *, is_short: bool) -> str:
    """How long a disk lasts, as exact as can be known; empty where nobody needs to know.

    A rate of two minutes says little of a day: while no job says that it still writes there, and the host finds nothing short,
    only the next hour is told. What is far is told in whole hours or days.
    """
    runway = runway_s(mount)
    if runway is None:
        return ""
    if is_short:
        return f"FULL in {format_duration(runway)}"
    if runway >= _SOON_S and not any(job.writes_to == mount.path and job.bytes_left for job in jobs):
        return ""
    if runway < _SOON_S:
        return f"full in {format_duration(runway)}"
    if runway < 2 * _DAY_S:
        return f"full in about {round(runway / 3600)} h"
    return f"full in about {round(runway / _DAY_S)} d" if runway < _FAR_S else ""


def seconds_needed(mount: MountSample, jobs: list[JobSample]) -> float | None:
    """How long the jobs that write to a disk will go on writing; None where none of them says."""
    times = [job.seconds_left for job in jobs if job.writes_to == mount.path and job.seconds_left is not None]
    return max(times, default=None)


def need_words(mount: MountSample, jobs: list[JobSample]) -> str:
    """What is still to come on a disk: ", the run still writes 720 GiB, its extraction for 2:51 h"; empty where unknown.

    A run says what all its stages will write; how long that takes only the job at work knows, of itself.
    """
    here = [job for job in jobs if job.writes_to == mount.path]
    saying = {job.job_id: job for job in here if job.bytes_left is not None}
    asking = [job for job in saying.values() if job.run_id not in saying and job.bytes_left]
    timed = [job for job in here if job.seconds_left is not None]
    longest = max(timed, key=lambda job: job.seconds_left or 0.0, default=None)
    duration = "" if longest is None else f"for {format_duration(longest.seconds_left or 0.0)}"
    if not asking:
        return "" if longest is None else f", {_subject(longest)} still writes {duration}"
    names = " and ".join(_subject(job) for job in asking)
    size = format_bytes(sum(job.bytes_left or 0 for job in asking))
    words = f", {names} still write{'s' if len(asking) == 1 else ''} {size}"
    if longest is None or asking == [longest]:
        return f"{words} {duration}".rstrip()
    return f"{words}, {f'its {one_line(longest.agent)}' if longest.run_id in saying else _subject(longest)} {duration}"


def _subject(job: JobSample) -> str:
    return f"the {one_line(job.agent) or 'job'}"


def pace_words(job: JobSample) -> list[str]:
    """How fast a job goes, by what it counts itself."""
    pace = [format_rate(job.samples_per_s, "samples")] if job.samples_per_s is not None else []
    pace += [format_rate(job.tokens_per_s, "tok")] if job.tokens_per_s is not None else []
    return pace + ([f"{format_bytes(job.bytes_per_s)}/s"] if job.bytes_per_s is not None else [])
