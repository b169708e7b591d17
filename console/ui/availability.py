"""Which keys would do something now, and of the others why not and what would change that."""

from console.state.host import HostState
from console.state.link import Up
from console.state.sanitize import one_line
from console.ui.words import job_mark, run_name
from remote.protocol.jobs import Job, is_over

_NOT_UP = "The host is not connected; it works again when the top line says so."


def why_not(action: str, state: HostState, shown: Job | None, *, following: bool, nothing_yet: str) -> str | None:  # noqa: PLR0911 - one case an action
    """What to say where `action` of the table in `keymap` would do nothing; None where it does something.

    `nothing_yet` is what to say while there is no job. Nothing is started or stopped over a link that is down.
    """
    up = isinstance(state.link, Up)
    match action:
        case "run" if not up:
            return _NOT_UP
        case "stop" | "approvals" if not up:
            return _NOT_UP
        case "stop" | "log" | "command" if shown is None:
            return nothing_yet
        case "stop" if shown is not None and is_over(shown.state):
            return f"{one_line(shown.job_id)} is over: there is nothing to stop."
        case "verdict":
            return _why_no_verdict(state, nothing_yet) or (None if up else _NOT_UP)
        case "gpus":
            return _why_no_gpus(state)
        case "follow" if following:
            return "The log follows its end already."
        case _:
            return None


def _why_no_verdict(state: HostState, nothing_yet: str) -> str | None:
    run = state.newest_run()
    if run is None:
        return nothing_yet
    if run.result is not None:
        return None
    if not is_over(run.state):
        return f"Run {run_name(run)} is at work: its verdict comes at its end."
    return (
        f"Run {run_name(run)} is {job_mark(run.state).word} without a verdict: its log says why, and r goes on with it."
    )


def _why_no_gpus(state: HostState) -> str | None:
    if state.sample is None:
        return "The host has sent no reading yet; its GPUs are in the first."
    if state.sample.gpus:
        return None
    reason = one_line(state.sample.gpu_detail) or "NVML names no device"
    return f"No GPU here: {reason}. With an NVIDIA driver that names devices, g shows all that is known of each."
