"""Rates from readings of counters and levels; pure."""

from collections import deque
from collections.abc import Hashable, Mapping
from itertools import combinations
from statistics import median


def difference_rate(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    """Units a second between two readings of a counter; None when one is unknown, no time passed or the counter restarted."""
    if before is None or after is None or elapsed_s <= 0 or after < before:
        return None
    return (after - before) / elapsed_s


class CounterRates:
    """Rates of named counters between one reading and the next."""

    def __init__(self) -> None:
        self._at = 0.0
        self._values: dict[Hashable, float | None] = {}

    def advance(self, at: float, values: Mapping[Hashable, float | None]) -> dict[Hashable, float | None]:
        """The rates since the last reading, `at` by a monotonic clock; None for what has no predecessor."""
        elapsed, before = at - self._at, self._values
        self._at, self._values = at, dict(values)
        return {name: difference_rate(before.get(name), value, elapsed) for name, value in values.items()}


class FillRate:
    """How fast a level rises: the median of all slopes in a sliding window, which bursts and single deletions do not sway."""

    def __init__(self, *, window_s: float = 120.0, spacing_s: float = 3.0, minimum_span_s: float = 12.0) -> None:
        self._window_s = window_s
        self._spacing_s = spacing_s
        self._minimum_span_s = minimum_span_s
        self._points: deque[tuple[float, float]] = deque()
        self._rate: float | None = None

    def add(self, at: float, level: float) -> None:
        """Take a reading of the level at a monotonic time; readings closer than the spacing are left out."""
        if self._points and at - self._points[-1][0] < self._spacing_s:
            return
        self._points.append((at, level))
        while at - self._points[0][0] > self._window_s:
            self._points.popleft()
        self._rate = self._slope()

    def rate(self) -> float | None:
        """Units a second; None until the window spans enough time."""
        return self._rate

    def _slope(self) -> float | None:
        if len(self._points) < 2 or self._points[-1][0] - self._points[0][0] < self._minimum_span_s:
            return None
        return median((y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(self._points, 2))
