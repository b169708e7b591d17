"""Histories of readings: bounded, oldest first, with None where nothing was known."""

import itertools
from collections import deque
from collections.abc import Iterable

CAPACITY = 600
"""Ten minutes at 1 Hz."""


class Series:
    """The last readings of one quantity."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._values: deque[float | None] = deque(maxlen=capacity)

    def append(self, value: float | None) -> None:
        """Add the newest reading."""
        self._values.append(value)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def last(self) -> float | None:
        """The newest reading."""
        return self._values[-1] if self._values else None

    def tail(self, count: int) -> list[float | None]:
        """The newest `count` readings, oldest first."""
        return list(self._values)[-count:] if count > 0 else []

    def shrink(self, width: int) -> list[float | None]:
        """The whole history in at most `width` columns, each the mean of what it stands for."""
        return shrink(list(self._values), width)


def shrink(values: list[float | None], width: int) -> list[float | None]:
    """At most `width` columns, each the mean of its share of `values`; a column of unknowns is unknown."""
    if width <= 0 or not values:
        return []
    if len(values) <= width:
        return values
    edges = [round(column * len(values) / width) for column in range(width + 1)]
    return [_mean(values[start:end]) for start, end in itertools.pairwise(edges)]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def plot(values: list[float | None], height: int, *, low: float | None = None, high: float | None = None) -> list[str]:
    """`height` lines of block columns, top line first, a column a value, between `low` and `high` (default: the extremes)."""
    known = [value for value in values if value is not None]
    if not known:
        return [" " * len(values)] * height
    bottom = min(known) if low is None else low
    span = ((max(known) if high is None else high) - bottom) or 1.0
    eighths = [
        0 if value is None else 1 + int(min(1.0, max(0.0, (value - bottom) / span)) * (height * 8 - 1) + 0.5)
        for value in values
    ]
    return ["".join(_FILLED[min(8, max(0, count - 8 * row))] for count in eighths) for row in reversed(range(height))]


_BLOCKS = "▁▂▃▄▅▆▇█"
_FILLED = " " + _BLOCKS


def sparkline(values: list[float | None], *, low: float | None = None, high: float | None = None) -> str:
    """One block character a value between `low` and `high` (by default the extremes), a space where nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return " " * len(values)
    bottom = min(known) if low is None else low
    top = max(known) if high is None else high
    span = (top - bottom) or 1.0
    last = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[min(last, max(0, int((value - bottom) / span * last + 0.5)))]
        for value in values
    )
