"""Disks that will be full, or out of inodes, before what is written to them is done; pure rules."""

from collections.abc import Iterator

from remote.protocol.telemetry import MountSample
from remote.telemetry.diagnosis_holding import Finding, Severity
from remote.telemetry.diagnosis_window import JobWindow, Window
from remote.telemetry.figures import bytes_text, duration_text, joined, list_text

NEGLIGIBLE_BYTES_PER_S = 64 * 1024.0
"""Logs and records."""

SHORT_S, VERY_SHORT_S = 3600.0, 600.0
"""Without a job that says how long it needs: time to act, and hardly any time left."""

FULL_BYTES, FULL_SHARE = 16 << 20, 0.01

MARGIN = 0.95
"""Of the time that a job still needs: its estimate and the disk's rate both waver."""

TROUBLE_HOLD_S, LONGEST_HOLD_S, HOLD_SHARE = 10.0, 180.0, 0.1
"""A rate must last a tenth of the runway that it gives: a checkpoint that is written in a minute is no leak."""

RELEASE_S = 60.0

FEW_INODES, FEW_SHARE, SMALL_DISK_SHARE, VERY_FEW_INODES = 10_000, 0.01, 0.1, 1000

_ADVICE = (
    "`roost storage usage` lists what fills it and what of that can go, `roost storage reclaim DIR` and then `purge` make room "
    "(on the screen: the page Storage); a job that finds the disk full is paused and goes on by itself when there is room"
)


def runway_short(window: Window) -> Iterator[Finding]:
    """Disks that will be full within the hour, or before the jobs that write to them are done."""
    for mount in window.sample.mounts:
        if mount.total_bytes <= 0:
            continue
        writers = _writers(window, mount)
        finding = _full(mount) or _too_small(mount, writers) or _runs_out(mount, writers)
        if finding is not None:
            yield finding


def _writers(window: Window, mount: MountSample) -> list[JobWindow]:
    return [job for job in window.jobs.values() if job.sample.writes_to == mount.path]


def _asking(writers: list[JobWindow]) -> list[JobWindow]:
    """Those that say how much they still write; a run says it for its jobs."""
    saying = {job.sample.job_id: job for job in writers if job.sample.bytes_left is not None}
    return [job for job in saying.values() if job.sample.run_id not in saying]


def _workers(writers: list[JobWindow]) -> list[JobWindow]:
    """Those that write themselves, without the runs that wait for them."""
    runs = {job.sample.run_id for job in writers}
    return [job for job in writers if job.sample.job_id not in runs]


def _full(mount: MountSample) -> Finding | None:
    if mount.free_bytes > min(FULL_BYTES, FULL_SHARE * mount.total_bytes):
        return None
    return _finding(mount, "error", f"{mount.path} is full", [], TROUBLE_HOLD_S)


def _too_small(mount: MountSample, writers: list[JobWindow]) -> Finding | None:
    """What is still to be written does not fit, at whatever rate."""
    asking = [job for job in _asking(writers) if job.sample.bytes_left]
    left = sum(job.sample.bytes_left or 0 for job in asking)
    if left <= mount.free_bytes:
        return None
    names = list_text(job.name for job in asking)
    lacking = bytes_text(left - mount.free_bytes)
    summary = f"{mount.path} is too small: {names} {'lacks' if len(asking) == 1 else 'lack'} {lacking} there"
    return _finding(mount, "error", _outlasted(mount, writers) or summary, asking, TROUBLE_HOLD_S)


def _runs_out(mount: MountSample, writers: list[JobWindow]) -> Finding | None:
    runway = _runway_s(mount)
    if runway is None:
        return None
    hold_s = min(LONGEST_HOLD_S, max(TROUBLE_HOLD_S, HOLD_SHARE * runway))
    if any(job.sample.seconds_left is not None for job in writers):
        summary = _outlasted(mount, writers)
        return None if summary is None else _finding(mount, "error", summary, writers, hold_s)
    if runway >= SHORT_S:
        return None
    severity = "error" if runway < VERY_SHORT_S else "warning"
    return _finding(mount, severity, f"{mount.path} is full in {duration_text(runway)}", writers, hold_s)


def _outlasted(mount: MountSample, writers: list[JobWindow]) -> str | None:
    """That a job needs longer than the disk has room, in words."""
    runway = _runway_s(mount)
    longest = max(writers, key=lambda job: job.sample.seconds_left or 0.0)
    needs = longest.sample.seconds_left or 0.0
    if runway is None or runway >= MARGIN * needs:
        return None
    return f"{mount.path} is full in {duration_text(runway)}, {longest.name} still needs {duration_text(needs)}"


def _runway_s(mount: MountSample) -> float | None:
    rate = mount.fill_rate_bytes_per_s
    return None if rate is None or rate < NEGLIGIBLE_BYTES_PER_S else mount.free_bytes / rate


def _finding(mount: MountSample, severity: Severity, summary: str, writers: list[JobWindow], hold_s: float) -> Finding:
    rate = mount.fill_rate_bytes_per_s
    left = _asking(writers)
    return Finding(
        code="runway_short",
        severity=severity,
        subject=mount.path,
        summary=summary,
        evidence=joined(
            f"{bytes_text(mount.free_bytes)} of {bytes_text(mount.total_bytes)} free",
            None if rate is None or rate < NEGLIGIBLE_BYTES_PER_S else f"filling at {bytes_text(rate)}/s",
            *(f"{job.name} has {bytes_text(job.sample.bytes_left or 0)} to write" for job in left),
        ),
        advice=_ADVICE,
        hold_s=hold_s,
        lapse_s=5.0,
        release_s=RELEASE_S,
    )


def inodes_short(window: Window) -> Iterator[Finding]:
    """Disks that a job writes to and that have hardly any inodes left."""
    for mount in window.sample.mounts:
        writers = _writers(window, mount)
        free, total = mount.free_inodes, mount.total_inodes
        if not writers or free is None or not _are_few(free, total):
            continue
        yield Finding(
            code="inodes_short",
            severity="error" if free < VERY_FEW_INODES else "warning",
            subject=mount.path,
            summary=f"{mount.path} has hardly any inodes left, {list_text(job.name for job in _workers(writers))} writes there",
            evidence=joined(
                f"{free} free inodes" if total is None else f"{free} of {total} inodes free",
                f"{bytes_text(mount.free_bytes)} free",
            ),
            advice=f"remove many small files: `du --inodes -x {mount.path} | sort -n | tail` on the host shows where they are; caches "
            "and old logs are usual",
            hold_s=TROUBLE_HOLD_S,
            release_s=RELEASE_S,
        )


def _are_few(free: int, total: int | None) -> bool:
    """Fewer than a job may need; a small disk has few from the beginning."""
    if total is None:
        return free < FEW_INODES
    return free < FEW_SHARE * total or free < min(FEW_INODES, SMALL_DISK_SHARE * total)
