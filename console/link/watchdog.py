"""Whether a link lives, from two clocks and the last word from the host; pure.

The monotonic clock stands still while a laptop sleeps and the wall clock does not, so a difference between them is a wake;
a clock that was set looks the same. Either way the host is asked, and only its silence counts.
"""

import msgspec


class LinkTimings(msgspec.Struct, frozen=True, kw_only=True):
    """The patience of a link, in seconds. The host beats every second."""

    hello_s: float = 30.0
    ping_interval_s: float = 5.0
    tick_s: float = 1.0
    silence_s: float = 8.0
    """After this much silence the link is taken for dead."""
    sleep_s: float = 5.0
    """A gap in our own time, or between the clocks, that means that this computer slept."""
    probe_s: float = 3.0
    """How long the host may take to answer after that."""
    steady_s: float = 10.0
    """A link that lived this long is tried again at once when it breaks; one that keeps breaking is not."""
    backoff_first_s: float = 1.0
    backoff_most_s: float = 30.0


class Alive(msgspec.Struct, frozen=True):
    """Nothing to worry about."""


class Suspect(msgspec.Struct, frozen=True):
    """Ask the host: this computer slept, or its clock was set."""


class Dead(msgspec.Struct, frozen=True):
    """The host has been silent for too long."""

    silent_s: float


class Watchdog:
    """Looks at the clocks now and then."""

    def __init__(self, timings: LinkTimings, *, monotonic: float, wall: float) -> None:
        self._timings = timings
        self._monotonic = monotonic
        self._wall = wall
        self._heard_at = monotonic

    def heard(self, monotonic: float) -> None:
        """The host said something."""
        self._heard_at = monotonic

    def check(self, monotonic: float, wall: float) -> Alive | Suspect | Dead:
        """How the link looks now."""
        gap = monotonic - self._monotonic
        jump = wall - self._wall - gap
        self._monotonic, self._wall = monotonic, wall
        if max(gap, jump) > self._timings.sleep_s:
            # What the host said meanwhile may still wait to be read.
            self._heard_at = monotonic
            return Suspect()
        silent_s = monotonic - self._heard_at
        return Dead(silent_s) if silent_s > self._timings.silence_s else Alive()
