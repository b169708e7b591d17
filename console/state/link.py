"""The state of the connection to a host, as people see it.

Ages are measured with the console's monotonic clock (`since`, `retry_at`: seconds of `time.monotonic()`).
"""

import msgspec

from remote.protocol.errors import ErrorInfo
from remote.protocol.requests import Welcome


class Connecting(msgspec.Struct, frozen=True, kw_only=True):
    """The first connection is being made, or a later attempt after a loss."""

    attempt: int
    since: float


class Up(msgspec.Struct, frozen=True, kw_only=True):
    """Frames arrive; `latency_s` is the last round trip of a small request."""

    since: float
    latency_s: float
    welcome: Welcome


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The link broke; jobs on the host go on. The next attempt is at `retry_at`."""

    since: float
    reason: str
    retry_at: float


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """No further attempt will be made; `error` is None after an orderly end."""

    error: ErrorInfo | None


LinkState = Connecting | Up | Lost | Closed
