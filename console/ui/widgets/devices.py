"""The devices: one row a GPU, or a CPU core on a host without one, drawn by a single widget because eight rows of eight
widgets cost ten times as much (measured: docs of Textual's Sparkline and DataTable redraw every cell)."""

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from console.state.host import HostState
from console.state.sanitize import sanitize
from console.state.series import Series, sparkline
from console.state.units import UNKNOWN, format_percent
from console.ui.widgets.palette import Palette
from remote.protocol.telemetry import GpuSample

_BAR_WIDTH = 8
_MOST_CORES = 8
_GIB = 1 << 30
_HISTORY_MINIMUM = 8
_DETAIL_FROM = 110

Row = list[tuple[str, str]]
"""Pieces of a line: text and colour."""


class Devices(Widget):
    """GPU rows or CPU rows with a heading; as tall as it has rows."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._rows: list[Row] = []
        self._base = Style()

    def show(self, state: HostState, palette: Palette, *, stale: bool) -> None:
        """Render the newest reading, in one quiet colour when it is stale."""
        self._base = Style(color=palette.foreground)
        width = self.size.width or 80
        rows = _rows(state, palette, width)
        if stale:
            rows = [[(text, palette.quiet) for text, _ in row] for row in rows]
        if len(rows) != len(self._rows):
            self.styles.height = max(1, len(rows))
        self._rows = rows
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's interface
        """One line a row."""
        return max(1, len(self._rows))

    def render_line(self, y: int) -> Strip:
        """Line `y` of the block."""
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self.rich_style)
        background = self.rich_style.bgcolor
        segments = [Segment(text, Style(color=color, bgcolor=background)) for text, color in self._rows[y]]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)


def _rows(state: HostState, palette: Palette, width: int) -> list[Row]:
    sample = state.sample
    if sample is None:
        return [[("waiting for the first reading of the devices", palette.quiet)]]
    if sample.gpus:
        head = [("GPU  use            memory       temp   power      state", palette.quiet)]
        return [head, *(_gpu_row(gpu, state.gpu_history.get(gpu.gpu_index), palette, width) for gpu in sample.gpus)]
    detail = f": {sanitize(sample.gpu_detail).strip()}" if width >= _DETAIL_FROM else ""
    rows: list[Row] = [[("CPU  use            ", palette.quiet), (f"no GPU on this host{detail}", palette.quiet)]]
    loads = sample.host.cpu_utilization[:_MOST_CORES]
    rows += [_cpu_row(index, load, state.cpu_history.get(index), palette, width) for index, load in enumerate(loads)]
    hidden = len(sample.host.cpu_utilization) - len(loads)
    if hidden > 0:
        rows[0].append((f"; {hidden} more cores not shown", palette.quiet))
    return rows


def _bar(fraction: float | None, palette: Palette) -> Row:
    if fraction is None:
        return [("░" * _BAR_WIDTH, palette["bar-empty"]), (f" {UNKNOWN:>4}", palette.quiet)]
    filled = round(min(1.0, max(0.0, fraction)) * _BAR_WIDTH)
    return [
        ("█" * filled, palette.level(fraction)),
        ("░" * (_BAR_WIDTH - filled), palette["bar-empty"]),
        (f" {format_percent(fraction):>4}", palette.foreground),
    ]


def _history(series: Series | None, width: int, palette: Palette) -> Row:
    if series is None or width < _HISTORY_MINIMUM:
        return []
    values = series.tail(width)
    row: Row = [(" " * (width - len(values)), palette.quiet)]
    row += [(sparkline([value], low=0.0, high=1.0), palette.level(value or 0.0)) for value in values]
    return row


def _cpu_row(index: int, load: float | None, series: Series | None, palette: Palette, width: int) -> Row:
    row: Row = [(f"{index:>3}  ", palette.foreground), *_bar(load, palette), ("  ", palette.quiet)]
    return row + _history(series, min(60, width - _length(row) - 1), palette)


def _gpu_row(gpu: GpuSample, series: Series | None, palette: Palette, width: int) -> Row:
    if gpu.error is not None:
        return [(f"{gpu.gpu_index:>3}  ", palette.foreground), (f"✗ {sanitize(gpu.error)}", palette.error)]
    memory = UNKNOWN
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes:
        memory = f"{gpu.memory_used_bytes / _GIB:.0f}/{gpu.memory_total_bytes / _GIB:.0f} GiB"
    heat = UNKNOWN if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} °C"
    power = UNKNOWN if gpu.power_watts is None else f"{gpu.power_watts:.0f} W"
    flag = ",".join(gpu.throttle_reasons) or "ok"
    flag_color = palette.warning if gpu.throttle_reasons else palette.success
    row: Row = [
        (f"{gpu.gpu_index:>3}  ", palette.foreground),
        *_bar(gpu.gpu_utilization, palette),
        (f"  {memory:>11}  {heat:>6}  {power:>6}  ", palette.foreground),
        (f"{flag:<12}"[:14], flag_color),
    ]
    return row + _history(series, min(90, width - _length(row) - 1), palette)


def _length(row: Row) -> int:
    return sum(len(text) for text, _ in row)
