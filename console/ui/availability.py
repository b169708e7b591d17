"""Which keys would do something now; the footer greys out the others."""

from console.state.host import HostState
from console.state.link import Up
from remote.protocol.jobs import Job, is_over


def is_possible(action: str, state: HostState, shown: Job | None, *, following: bool) -> bool:
    """Whether `action` of the table in `keymap` would do anything; nothing is stopped over a link that is down."""
    up, run = isinstance(state.link, Up), state.newest_run()
    possible = {
        "run": up,
        "stop": up and shown is not None and not is_over(shown.state),
        "log": shown is not None,
        "command": shown is not None,
        "verdict": up and run is not None and run.result is not None,
        "gpus": state.sample is not None and bool(state.sample.gpus),
        "follow": not following,
    }
    return possible.get(action, True)
