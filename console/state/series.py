"""Histories of readings: bounded, oldest first, with None where nothing was known."""

import bisect
import itertools
import statistics
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


_MISSED = 2.5
"""Readings that are this many times their usual distance apart have a gap between them."""
_LEAST_SPACING_S = 1.0


class TimeSeries:
    """The last readings of one quantity, each at its moment; where some are missing there are columns without a value.

    Readings may come in any order; the first one of a moment stays.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._times: list[float] = []
        self._values: list[float | None] = []
        self._columns: list[float | None] | None = None

    def add(self, at: float, value: float | None) -> None:
        """Put a reading in its place."""
        place = bisect.bisect_left(self._times, at)
        if place < len(self._times) and self._times[place] == at:
            return
        self._times.insert(place, at)
        self._values.insert(place, value)
        del self._times[: -self._capacity], self._values[: -self._capacity]
        self._columns = None

    def __len__(self) -> int:
        return len(self.columns())

    @property
    def last(self) -> float | None:
        """The newest reading."""
        return self._values[-1] if self._values else None

    def readings(self) -> list[tuple[float, float | None]]:
        """Every reading at its moment, oldest first, and one of None after each that is followed by a gap."""
        usual = self._usual_distance()
        found: list[tuple[float, float | None]] = []
        for at, value in zip(self._times, self._values, strict=True):
            if found and at - found[-1][0] > _MISSED * usual:
                found.append((found[-1][0] + usual, None))
            found.append((at, value))
        return found

    def columns(self) -> list[float | None]:
        """A column a reading, oldest first, and one of None for each that is missing in between."""
        if self._columns is None:
            self._columns = self._laid_out()[-self._capacity :]
        return self._columns

    def tail(self, count: int) -> list[float | None]:
        """The newest `count` columns, oldest first."""
        return self.columns()[-count:] if count > 0 else []

    def _distances(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self._times)]

    def _usual_distance(self) -> float:
        distances = self._distances()
        return max(_LEAST_SPACING_S, statistics.median_low(distances)) if distances else _LEAST_SPACING_S

    def _laid_out(self) -> list[float | None]:
        usual = self._usual_distance()
        columns: list[float | None] = self._values[:1]
        for distance, value in zip(self._distances(), self._values[1:], strict=True):
            if distance > _MISSED * usual:
                columns += [None] * min(self._capacity, round(distance / usual) - 1)
            columns.append(value)
        return columns


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
