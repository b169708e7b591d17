"""What a page is drawn from: one look at a host."""

from typing import NamedTuple

from console.state.alerts import Alert
from console.state.host import HostState
from console.state.link import Up
from console.ui.widgets.palette import Palette
from remote.protocol.jobs import Job

_STALE_S = 5.0


class Glance(NamedTuple):
    """`now` is the console's clock in seconds, `host_now` the host's (since the epoch); `replay` says where a replay is, else empty."""

    state: HostState
    shown_job: Job | None
    now: float
    host_now: float
    palette: Palette
    found: list[Alert]
    replay: str = ""

    @property
    def stale(self) -> bool:
        """Whether the newest reading says how things were, not how they are."""
        at = self.state.sample_at
        return not isinstance(self.state.link, Up) or (at is not None and self.now - at > _STALE_S)
