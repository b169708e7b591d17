"""Plots before they are drawn, pure: quantities along time or along the steps of a training."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

Axis = Literal["time", "step"]


class Point(NamedTuple):
    """A reading: seconds on the host's clock, the training's step where it has one; a value of None is a gap in the curve."""

    at: float
    step: int | None
    value: float | None


class Curve(NamedTuple):
    """One quantity; `words` says a value, `color` is a role of the theme. A dotted one is what the others are compared with, by steps.

    `short` is its name beside the others of its plot.
    """

    name: str
    short: str
    words: Callable[[float], str]
    points: list[Point]
    color: str
    dotted: bool = False


class Plot(NamedTuple):
    """Curves on one scale, which `tick` labels; a linear one begins at `low`, or at the least value where that is None."""

    title: str
    curves: list[Curve]
    tick: Callable[[float], str]
    low: float | None = None


class Span(NamedTuple):
    """A part of an axis, both ends included: seconds on the host's clock, or steps."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """From end to end."""
        return self.end - self.start


class Track(NamedTuple):
    """A curve along one axis: places in their order, and what was read there."""

    curve: Curve
    places: list[float]
    values: list[float | None]


def track(curve: Curve, axis: Axis) -> Track:
    """The curve along `axis`: by steps without the points that have none, by time not at all what was at another one."""
    if axis == "time" and curve.dotted:
        return Track(curve, [], [])
    points = curve.points if axis == "time" else [point for point in curve.points if point.step is not None]
    places = [point.at if axis == "time" else float(point.step or 0) for point in points]
    return Track(curve, places, [point.value for point in points])


def along(plots: Iterable[Plot], axis: Axis) -> list[tuple[Plot, list[Track]]]:
    """The plots with what they have on `axis`; one that has nothing there is left out."""
    found = ((plot, [track(curve, axis) for curve in plot.curves]) for plot in plots)
    return [(plot, tracks) for plot, tracks in found if any(each.places for each in tracks)]


def extent(plots: Iterable[tuple[Plot, list[Track]]]) -> Span | None:
    """From the first reading to the last one; None without any."""
    ends = [(each.places[0], each.places[-1]) for _, tracks in plots for each in tracks if each.places]
    return Span(min(start for start, _ in ends), max(end for _, end in ends)) if ends else None


def reading_at(track: Track, place: float, reach: float) -> float | None:
    """The value nearest to `place`; None in a gap, and farther than `reach` before the first or after the last reading."""
    places = track.places
    if not places or place < places[0] - reach or place > places[-1] + reach:
        return None
    after = min(bisect_left(places, place), len(places) - 1)
    before = max(0, after - 1)
    return track.values[after if places[after] - place <= place - places[before] else before]


class StepTimes(NamedTuple):
    """When a training was at which step, in their order; empty without a training."""

    moments: list[float]
    steps: list[int]

    def step_at(self, at: float) -> int | None:
        """The step that was worked on at a moment on the host's clock; None before the first and after the last one."""
        if not self.moments or not self.moments[0] <= at <= self.moments[-1]:
            return None
        return self.steps[bisect_left(self.moments, at)]

    def moment_of(self, step: float) -> float | None:
        """When a step was logged, or the next one that was; None before the first and after the last one."""
        if not self.steps or not self.steps[0] <= step <= self.steps[-1]:
            return None
        return self.moments[bisect_left(self.steps, step)]


def step_times(plots: Iterable[Plot]) -> StepTimes:
    """Those of the training that is not there for comparison."""
    for plot in plots:
        for curve in plot.curves:
            found = [(point.at, point.step) for point in curve.points if point.step is not None]
            if found and not curve.dotted:
                return StepTimes([at for at, _ in found], [step for _, step in found])
    return StepTimes([], [])
