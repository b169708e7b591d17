"""The time of a replay: it stands, runs at any speed, and is set forward and back."""

import time
from collections.abc import Callable

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class PlayClock:
    """Seconds of a recording, never beyond its `duration_s`; `on_change` is called when it is set, stopped or sped up."""

    def __init__(
        self,
        position: float,
        *,
        duration_s: float,
        speed: float = 1.0,
        running: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.speed = speed
        self.duration_s = duration_s
        self.on_change: Callable[[], None] = lambda: None
        self._monotonic = monotonic
        self._running = running
        self._position = min(max(0.0, position), duration_s)
        self._since = monotonic()

    @property
    def running(self) -> bool:
        """Whether it goes on by itself."""
        return self._running and self.now() < self.duration_s

    def now(self) -> float:
        """The position in seconds."""
        moved = (self._monotonic() - self._since) * self.speed if self._running else 0.0
        return min(self.duration_s, self._position + moved)

    def wait_s(self, at: float) -> float | None:
        """How long it takes until `at`; 0 when it is reached, None when it never is as things are."""
        ahead = at - self.now()
        if ahead <= 0:
            return 0.0
        return ahead / self.speed if self._running else None

    def set(self, position: float) -> None:
        """Go to a position within the recording."""
        self._position = min(max(0.0, position), self.duration_s)
        self._since = self._monotonic()
        self.on_change()

    def toggle(self) -> None:
        """Stop or go on."""
        self._position, self._since = self.now(), self._monotonic()
        self._running = not self._running
        self.on_change()

    def speed_up(self, steps: int) -> None:
        """The next speeds of `SPEEDS`, slower with a negative number."""
        nearest = min(range(len(SPEEDS)), key=lambda index: abs(SPEEDS[index] - self.speed))
        self._position, self._since = self.now(), self._monotonic()
        self.speed = SPEEDS[min(max(0, nearest + steps), len(SPEEDS) - 1)]
        self.on_change()
