"""The devices: one row a GPU, or a processor core on a host without one.

One widget draws all rows: eight rows of table cells or sparklines redraw many times as much (measured on Textual 8.2).
"""

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from console.state.device_health import health_words
from console.state.host import HostState
from console.state.sanitize import one_line
from console.state.series import TimeSeries, sparkline
from console.state.units import UNKNOWN, format_percent
from console.ui.messages import ActionWanted
from console.ui.widgets.palette import Palette
from remote.protocol.telemetry import GpuSample, TelemetrySample

_BAR_WIDTH = 8
_MOST_CORES = 8
_GIB = 1 << 30
_LEAST_HISTORY = 8
_LIMITS_BEYOND_HEADING = 16
"""What is wrong with a device takes this much more room than its heading."""
_HEALTH_WIDTH = 20
_WIDE_FROM = 110
"""From here on there is room for who owns a device and for its clock."""

Row = list[tuple[str, str]]
"""Pieces of a line: text and colour."""


class Devices(Widget):
    """GPU rows or CPU rows with a heading; as tall as it has rows."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._rows: list[Row] = []

    def show(self, state: HostState, palette: Palette, *, stale: bool) -> None:
        """Render the newest reading, in one quiet colour when it is stale."""
        rows = device_rows(state, palette, self.content_size.width or 78)
        if stale:
            rows = [[(text, palette.quiet) for text, _ in row] for row in rows]
        if rows == self._rows:
            return
        resized = len(rows) != len(self._rows)
        self._rows = rows
        self.refresh(layout=resized)

    def on_click(self) -> None:
        """Each device in full."""
        self.post_message(ActionWanted("gpus"))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's interface
        """One line a row."""
        return max(1, len(self._rows))

    def render_line(self, y: int) -> Strip:
        """Line `y` of the block."""
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self.rich_style)
        background = self.rich_style.bgcolor
        segments = [Segment(text, Style(color=color, bgcolor=background)) for text, color in self._rows[y]]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style).simplify()


def device_rows(state: HostState, palette: Palette, width: int) -> list[Row]:
    """The heading and a row a device, at most `width` cells wide."""
    sample = state.sample
    if sample is None:
        return [[("devices: waiting for the first reading", palette.quiet)]]
    if not sample.gpus:
        return _cpu_rows(sample, state, palette, width)
    owners = {gpu.gpu_index: _owner(gpu, state) for gpu in sample.gpus}
    wide = width >= _WIDE_FROM
    head = "GPU    use             memory      temp   power"
    head += "    clock     owner       health" if wide else "   health"
    histories = _history_width(sample, state, width - len(head) - 6)
    start = min(width - histories, len(head) + _LIMITS_BEYOND_HEADING)
    rows: list[Row] = [_heading(sample, head, start, histories, palette, width)]
    room = start - 1 if histories else width
    for gpu in sample.gpus:
        owner = owners[gpu.gpu_index]
        row = (
            _gpu_row(gpu, sample, owner, palette, wide=wide)
            if gpu.error is None
            else _lost_row(gpu, owner, palette, room)
        )
        rows.append(_with_history(row, state.readings.gpus.get(gpu.gpu_index), start, histories, palette))
    return rows


def _heading(sample: TelemetrySample, head: str, start: int, histories: int, palette: Palette, width: int) -> Row:
    """A stand-in for the devices is said where there is room for it; the top bar says it always."""
    word = " SIMULATED" if sample.gpu_source == "simulated" else ""
    room = width - len(word)
    told = (f"use, last {histories} readings", f"{histories} readings", "") if histories else ("",)
    heading = next((line for words in told if len(line := f"{head:<{start}}{words}".rstrip()) <= room), head)
    return [(f"{heading:<{room}}"[:room], palette.quiet), (word, palette.warning)]


def _history_width(sample: TelemetrySample, state: HostState, room: int) -> int:
    longest = max((len(state.readings.gpus[gpu.gpu_index]) for gpu in sample.gpus), default=0)
    width = min(room, 80, max(longest, _LEAST_HISTORY))
    return width if width >= _LEAST_HISTORY else 0


def _cpu_rows(sample: TelemetrySample, state: HostState, palette: Palette, width: int) -> list[Row]:
    loads = sample.host.cpu_utilization[:_MOST_CORES]
    hidden = len(sample.host.cpu_utilization) - len(loads)
    more = f"; {hidden} more cores are not shown" if hidden > 0 else ""
    detail = one_line(sample.gpu_detail)
    head = f"CPU    use             no GPU here: {detail}{more}"
    rows: list[Row] = [[(head[: width - 1] + "…" if len(head) > width else head, palette.quiet)]]
    for index, load in enumerate(loads):
        row: Row = [(f"CPU {index:<3}", palette.foreground), *_bar(load, palette), ("   ", palette.quiet)]
        room = min(80, width - _length(row))
        history = _history(state.readings.cpus.get(index), room, palette) if room >= _LEAST_HISTORY else []
        rows.append(row + history)
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


def _history(series: TimeSeries | None, width: int, palette: Palette) -> Row:
    if series is None:
        return []
    return [(sparkline([value], low=0.0, high=1.0), palette.level(value or 0.0)) for value in series.tail(width)]


def _with_history(row: Row, series: TimeSeries | None, start: int, histories: int, palette: Palette) -> Row:
    if not histories:
        return row
    history = _history(series, histories, palette)
    gap = start - _length(row) + histories - len(history)
    return [*row, (" " * max(1, gap), palette.quiet), *history]


def _owner(gpu: GpuSample, state: HostState) -> str:
    if gpu.owner_job_id is None:
        return UNKNOWN
    job = state.jobs.get(gpu.owner_job_id)
    return job.agent if job is not None else gpu.owner_job_id


def _gpu_row(gpu: GpuSample, sample: TelemetrySample, owner: str, palette: Palette, *, wide: bool) -> Row:
    label = (f"GPU {gpu.gpu_index:<3}", palette.foreground)
    memory = UNKNOWN
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes:
        memory = f"{gpu.memory_used_bytes / _GIB:.0f}/{gpu.memory_total_bytes / _GIB:.0f} GiB"
    heat = UNKNOWN if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} °C"
    power = UNKNOWN if gpu.power_watts is None else f"{gpu.power_watts:.0f} W"
    clock = UNKNOWN if gpu.sm_clock_hz is None else f"{gpu.sm_clock_hz / 1e6:.0f} MHz"
    more = f"  {clock:>8}  {one_line(owner):<10}" if wide else ""
    troubles = ", ".join(health_words(gpu, sample))
    return [
        label,
        *_bar(gpu.gpu_utilization, palette),
        (f"  {memory:>10}  {heat:>6}  {power:>6}{more}  ", palette.foreground),
        (_cut(f"! {troubles}", _HEALTH_WIDTH) if troubles else "ok", palette.warning if troubles else palette.quiet),
    ]


def _lost_row(gpu: GpuSample, owner: str, palette: Palette, room: int) -> Row:
    """Why a device cannot be read, cut where there is no room; then whose it is, where there is."""
    label = f"GPU {gpu.gpu_index:<3}"
    why = _cut(f"✗ {one_line(gpu.error or '')}", room - len(label))
    whose = f"  used by {one_line(owner)}" if gpu.owner_job_id else ""
    if len(label) + len(why) + len(whose) > room:
        whose = ""
    return [(label, palette.foreground), (why, palette.error), (whose, palette.foreground)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _length(row: Row) -> int:
    return sum(len(text) for text, _ in row)
