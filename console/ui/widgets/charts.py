"""Curves with their last value: training's loss and accuracy, the engine's rates, acceptance; a line, or plots where there is room."""

from typing import NamedTuple

from rich.text import Text

from console.state.host import HostState
from console.state.series import Series, TimeSeries, plot, shrink, sparkline
from console.state.units import format_rate
from console.ui.widgets.lines import Lines
from console.ui.widgets.palette import Palette

_LEAST_PLOT = 3
"""Rows of all plots, up to which there is a line instead."""
_GOOD_PLOT, _MOST_PLOT = 6, 16
"""Rows that make a plot readable, and that it has at most."""
_NARROW_PLOT, _WIDE_PLOT = 24, 100
"""Columns that a plot beside another has at least, and that it does without where another can stand beside it."""
_LINE_GAP = 3
_RECENT = 300
_SMOOTHED = 10


class Curve(NamedTuple):
    """One curve; `low` None scales to its own extremes. The `short` label and value are for a line."""

    label: str
    short: str
    last: str
    values: list[float | None]
    low: float | None
    color: str


class Charts(Lines):
    """Renders what there is; says so while there is nothing."""

    def show(self, state: HostState, palette: Palette, *, rows: int) -> None:
        """Render the newest run's curves and the engine's on `rows` rows: plots beside each other, or a line where they have no room."""
        curves = curves_of(state)
        width = self.content_size.width or 78
        if not curves:
            hint = "curves of loss, accuracy, acceptance and tok/s appear here while a run works"
            self.put(Text(hint, style=palette.quiet))
        elif rows > _LEAST_PLOT:
            self.put(_stacked(curves[:4], width, rows, palette))
        else:
            self.put(_line(curves, width, palette))


def curves_of(state: HostState) -> list[Curve]:
    """What there is to draw now."""
    found: list[Curve] = []
    training = state.training_curves()
    if training is not None and training.last is not None:
        found.append(
            _curve(
                "training loss",
                "loss",
                "not finite" if training.loss.last is None else f"{training.loss.last:.2f}",
                training.loss,
                None,
                "accent",
            )
        )
        if training.accuracy.last is not None:
            last = f"{training.accuracy.last:.0%}"
            found.append(
                _curve("accuracy of the 1st draft token", "1st draft token", last, training.accuracy, 0.0, "success")
            )
    rates = (("prefill", state.readings.prefill, "primary"), ("decode", state.readings.decode, "primary"))
    for label, history, color in rates:
        if any(recent := [value for value in history.tail(_RECENT) if value is not None]):
            # A prompt is read within a second of many: the mean is what the others show, not whether one is read just now.
            mean = sum(recent[-_SMOOTHED:]) / len(recent[-_SMOOTHED:])
            found.append(_curve(label, label, format_rate(mean, "tok"), history, 0.0, color))
    if state.readings.acceptance.last is not None:
        last = f"{state.readings.acceptance.last:.2f}"
        found.append(_curve("acceptance length", "acceptance", last, state.readings.acceptance, 1.0, "success"))
    return found


def _curve(label: str, short: str, last: str, series: Series | TimeSeries, low: float | None, color: str) -> Curve:
    return Curve(
        label, short, last, series.tail(_RECENT if label in ("prefill", "decode") else len(series)), low, color
    )


def _line(curves: list[Curve], width: int, palette: Palette) -> Text:
    words = sum(len(curve.short) + len(curve.last) + 2 for curve in curves)
    room = (width - words - _LINE_GAP * (len(curves) - 1)) // len(curves)
    text = Text()
    for position, curve in enumerate(curves):
        text.append(" " * _LINE_GAP if position else "")
        text.append(f"{curve.short} ", style=palette.quiet)
        drawn = sparkline(shrink(curve.values, max(4, min(40, room))), low=curve.low)
        text.append(f"{drawn} ", style=palette[curve.color])
        text.append(curve.last, style=palette.foreground)
    return text


def _stacked(curves: list[Curve], width: int, rows: int, palette: Palette) -> Text:
    """So many beside each other as leaves each the most height, and the rest below; a line where none has any."""
    columns, height = _arrangement(len(curves), width, rows)
    if height < 1:
        return _line(curves, width, palette)
    each = (width - _LINE_GAP * (columns - 1)) // columns
    groups = [curves[at : at + columns] for at in range(0, len(curves), columns)]
    return Text("\n\n").join(_plots(group, each, height, palette) for group in groups)


def _arrangement(count: int, width: int, rows: int) -> tuple[int, int]:
    """How many plots stand beside each other, and how many rows each has."""
    fewest = min(count, max(1, width // _WIDE_PLOT))
    most = max(fewest, min(count, (width + _LINE_GAP) // (_NARROW_PLOT + _LINE_GAP)))
    found = []
    for columns in range(fewest, most + 1):
        lines = -(-count // columns)
        found.append((columns, min(_MOST_PLOT, (rows - 2 * lines + 1) // lines)))
    return max(found, key=lambda each: (min(each[1], _GOOD_PLOT), -each[0]))


def _plots(curves: list[Curve], each: int, height: int, palette: Palette) -> Text:
    """Beside each other, `each` columns wide; the value of a curve stays when its name has no room."""
    heading = Text()
    rows = [Text() for _ in range(height)]
    for position, curve in enumerate(curves):
        gap = " " * _LINE_GAP if position else ""
        label = curve.label if len(curve.label) + len(curve.last) < each else curve.short
        label = label[: max(0, each - len(curve.last) - 1)]
        heading.append(f"{gap}{label} ", style=palette.quiet)
        heading.append(curve.last.ljust(each - len(label) - 1), style=palette.foreground)
        drawn = plot(shrink(curve.values, each), height, low=curve.low)
        for row, line in zip(rows, drawn, strict=True):
            row.append(f"{gap}{line.ljust(each)}", style=palette[curve.color])
    return Text("\n").join([heading, *rows])
