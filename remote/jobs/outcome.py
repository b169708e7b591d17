"""How a job ended: exit code 0 alone is no success, its promised outputs must be there. Standard library only."""

import hashlib
import signal
from pathlib import Path
from typing import Any, NamedTuple

from remote.jobs import plain_json


class Outcome(NamedTuple):
    """`name` is succeeded, failed or stopped; `reason` is for people."""

    name: str
    reason: str


def judge(
    directory: Path, *, exit_code: int | None, killed_by: int | None, stop: dict[str, Any] | None, oom_kills: int = 0
) -> Outcome:
    """The outcome of the work in `directory` that ended with `exit_code` or by the signal `killed_by`.

    `oom_kills`: how often the kernel's out-of-memory killer struck while it ran.
    """
    if stop is not None:
        return Outcome("stopped", stop_reason(stop))
    if exit_code == 0:
        fault = find_fault(directory)
        return Outcome("succeeded", "") if fault is None else Outcome("failed", fault)
    return Outcome("failed", _told_failure(directory) or _bare_failure(exit_code, killed_by, oom_kills))


def judge_unseen(directory: Path, *, stop: dict[str, Any] | None, watched: bool) -> Outcome | None:
    """The outcome of work that ended without its supervisor, so that its exit code is unknown; None when nothing proves one.

    `watched`: a later supervisor saw it end, so that missing outputs mean a failure.
    """
    if stop is not None:
        return Outcome("stopped", f"{stop_reason(stop)} (its first supervisor was gone, so its exit code is unknown)")
    if find_fault(directory) is None:
        return Outcome(
            "succeeded", "its supervisor was gone when it ended: the exit code is unknown, the outputs are whole"
        )
    told = _told_failure(directory)
    if told is None and not watched:
        return None
    return Outcome(
        "failed", told or "its supervisor was gone when it ended, so its exit code is unknown; it left no result"
    )


def stop_reason(stop: dict[str, Any]) -> str:
    """Who stopped a job, and why."""
    reason = stop.get("reason") or "no reason given"
    return f"stopped by {stop.get('requested_by') or 'unknown'}: {reason}"


def find_fault(directory: Path) -> str | None:
    """What is wrong with the promised outputs; None when `result.json` and every manifest that it names are as recorded."""
    try:
        result = plain_json.read_json(directory / "result.json")
        promised = (
            [] if result is None else [(str(o["path"]), str(o["manifest_sha256"])) for o in result.get("outputs", [])]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"the work ended with exit code 0, but its result.json cannot be read ({type(error).__name__}: {error})"
    if result is None:
        return "the work ended with exit code 0 but left no result.json; its log says how far it came"
    faults = (_output_fault(Path(path), recorded) for path, recorded in promised)
    return next((fault for fault in faults if fault is not None), None)


def _output_fault(output: Path, recorded: str) -> str | None:
    manifest = output / "manifest.json"
    try:
        found = hashlib.sha256(manifest.read_bytes()).hexdigest()
    except OSError as error:
        return (
            f"the work ended with exit code 0, but the manifest of an output is missing: {manifest} ({error.strerror})"
        )
    if found != recorded:
        return (
            f"the work ended with exit code 0, but {manifest} is not the manifest that it recorded "
            f"(SHA-256 {found[:12]}…, recorded {recorded[:12]}…)"
        )
    return None


def _told_failure(directory: Path) -> str | None:
    try:
        failure = plain_json.read_json(directory / "failure.json")
    except (OSError, ValueError):
        return None
    return None if failure is None else failure.get("message")


def _bare_failure(exit_code: int | None, killed_by: int | None, oom_kills: int) -> str:
    ran_out = "; the kernel's out-of-memory killer struck while it ran: give it less to hold, or the host more memory"
    if killed_by is None:
        return f"the work ended with exit code {exit_code}; the end of its log says more{ran_out if oom_kills else ''}"
    try:
        name = signal.Signals(killed_by).name
    except ValueError:
        name = "unknown"
    hint = ran_out if oom_kills else "; nobody asked for it here" if killed_by == signal.SIGKILL else ""
    return f"the work was killed by signal {killed_by} ({name}){hint}"
