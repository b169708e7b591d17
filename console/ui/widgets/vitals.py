"""What no page goes without: the devices, the disk that fills first, the jobs at work. Three lines, four where it is narrow."""

from rich.text import Text

from console.state.device_health import health_words
from console.state.host import HostState
from console.state.series import sparkline
from console.state.units import format_duration, format_percent
from console.ui.widgets.glance import Glance
from console.ui.widgets.host_lines import pressing_disk
from console.ui.widgets.lines import Lines
from console.ui.widgets.palette import Palette
from console.ui.words import job_mark, run_name
from remote.protocol.jobs import is_over
from remote.protocol.progress import StageRunning
from remote.protocol.telemetry import TelemetrySample

_LABEL = 5
_CELL = 9
"""Columns of a device: its number, a mark, how busy it is."""
_MOST_CORES = 8
_LOST, _TROUBLED = "✗", "!"


class Vitals(Lines):
    """Devices, disk and jobs; quiet while the reading is old."""

    def show(self, glance: Glance) -> None:
        """Render the newest reading."""
        width = self.content_size.width or 78
        lines = [*device_lines(glance, width), _disk(glance, width), job_line(glance.state, glance.palette)]
        text = Text("\n").join(lines)
        self.put(Text(text.plain, style=glance.palette.quiet) if glance.stale else text)


def device_lines(glance: Glance, width: int) -> list[Text]:
    """`GPU 0 ▆ 98%  1 ! 12%  2 ✗ lost`: every device, on as many lines as that takes."""
    sample, palette = glance.state.sample, glance.palette
    if sample is None:
        return [Text("devices: waiting for the first reading", style=palette.quiet)]
    cells = _gpu_cells(sample, palette) if sample.gpus else _core_cells(sample, palette)
    per_line = max(1, (width - _LABEL) // _CELL)
    lines = []
    for start in range(0, len(cells), per_line):
        line = Text("GPU  " if sample.gpus else "CPU  ", style=palette.quiet)
        lines.append(line.append_text(Text("").join(cells[start : start + per_line])))
    return lines


def _gpu_cells(sample: TelemetrySample, palette: Palette) -> list[Text]:
    diagnosed = {each.subject for each in sample.diagnoses}
    cells = []
    for gpu in sample.gpus:
        if gpu.error is not None:
            cells.append(_cell(gpu.gpu_index, _LOST, "lost", palette.error, palette))
            continue
        trouble = f"GPU {gpu.gpu_index}" in diagnosed or bool(health_words(gpu, sample))
        load = gpu.gpu_utilization
        mark = _TROUBLED if trouble else sparkline([load], low=0.0, high=1.0)
        color = palette.warning if trouble else palette.level(load or 0.0)
        cells.append(_cell(gpu.gpu_index, mark, format_percent(load), color, palette))
    return cells


def _core_cells(sample: TelemetrySample, palette: Palette) -> list[Text]:
    loads = sample.host.cpu_utilization
    cells = [
        _cell(index, sparkline([load], low=0.0, high=1.0), format_percent(load), palette.level(load), palette)
        for index, load in enumerate(loads[:_MOST_CORES])
    ]
    if len(loads) > _MOST_CORES:
        cells.append(Text(f" +{len(loads) - _MOST_CORES} more", style=palette.quiet))
    return cells


def _cell(index: int, mark: str, words: str, color: str, palette: Palette) -> Text:
    text = Text(f"{index} ", style=palette.quiet)
    text.append(mark, style=color)
    return text.append(f" {words:<{_CELL - 4}}" if index < 10 else f" {words:<{_CELL - 5}}", style=palette.foreground)


def _disk(glance: Glance, width: int) -> Text:
    line = pressing_disk(glance.state, glance.palette, columns=width)
    return line if line is not None else Text("disk: waiting for the first reading", style=glance.palette.quiet)


def job_line(state: HostState, palette: Palette) -> Text:
    """The jobs at work, the run with its stage first; while there are none, how the newest run ended."""
    text = Text("jobs ", style=palette.quiet)
    live = [job for job in state.shown_jobs() if not is_over(job.state)]
    for position, job in enumerate(live):
        mark = job_mark(job.state)
        text.append("  " if position else "")
        name = f"run {run_name(job)}" if job.agent == "run" else job.agent
        text.append(f"{mark.glyph} {name} {mark.word}", style=palette[mark.color])
        if job.agent == "run":
            text.append(_stage_words(state, job.job_id), style=palette.foreground)
    if not live:
        newest = next(iter(state.shown_jobs()), None)
        text.append("none at work", style=palette.foreground)
        if newest is not None:
            mark = job_mark(newest.state)
            name = f"run {run_name(newest)}" if newest.agent == "run" else newest.agent
            text.append(f"; the newest: {mark.glyph} {name} {mark.word}", style=palette[mark.color])
    return text


def _stage_words(state: HostState, run_id: str) -> str:
    for stage, stage_state in state.stages_of(run_id):
        if isinstance(stage_state, StageRunning):
            share = "" if stage_state.fraction is None else f" {format_percent(stage_state.fraction)}"
            left = "" if stage_state.eta_s is None else f", {format_duration(stage_state.eta_s)} left"
            return f": {stage}{share}{left}"
    return ""
