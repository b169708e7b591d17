"""Inference servers as they are now, and the jobs that measured servers."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.state.host import HostState
from console.state.sanitize import one_line
from console.state.units import UNKNOWN, format_percent, format_rate
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from console.ui.words import age_of, job_mark, outcome_of, pace_of
from remote.protocol.jobs import Job, is_over
from remote.protocol.telemetry import EngineSample

_MEASURING = ("benchmark", "tuning", "evaluation")
_MOST_ENDED = 20
_WIDE_FROM = 100
"""Columns from which the jobs' ids have room."""


def servers_view(state: HostState, host_now: float, palette: Palette, width: int) -> RenderableType:
    """Servers at work with their figures, then what was measured, the newest first."""
    samples = {engine.job_id: engine for engine in (state.sample.engines if state.sample is not None else [])}
    jobs = state.ordered_jobs()
    serving = [job for job in jobs if job.agent == "server" and not is_over(job.state)]
    parts: list[RenderableType] = [Text("At work", style=f"bold {palette.primary}")]
    if not serving:
        parts.append(
            Text("  no server is running; `roost server start` starts one, and a run its own", style=palette.quiet)
        )
    parts += [_server(job, samples.get(job.job_id), host_now, palette) for job in serving]
    measured = [job for job in jobs if job.agent in _MEASURING]
    parts.append(Text("\nMeasured", style=f"bold {palette.primary}"))
    if measured:
        parts.append(_measured(measured, host_now, palette, width))
    else:
        parts.append(Text("  nothing yet; `roost server bench` and `roost server tune` measure", style=palette.quiet))
    return Group(*parts)


def _server(job: Job, engine: EngineSample | None, host_now: float, palette: Palette) -> RenderableType:
    mark = job_mark(job.state)
    heading = Text(f"  {mark.glyph} {mark.word} {age_of(job, host_now)}  ", style=palette[mark.color])
    heading.append(job.job_id, style=palette.foreground)
    rows = []
    if engine is not None:
        rows = [("engine", one_line(engine.engine) + ("" if engine.is_answering else ": ! does not answer"))]
        rows += [
            ("reads", format_rate(engine.prefill_tokens_per_s, "tok")),
            ("writes", format_rate(engine.decode_tokens_per_s, "tok")),
            ("requests", f"{_count(engine.running_requests)} running, {_count(engine.queued_requests)} queued"),
            ("cache", f"{format_percent(engine.cache_usage)} used"),
        ]
        if engine.acceptance_length is not None:
            rows.append(("accepts", f"{engine.acceptance_length:.2f} tokens a verification"))
    if job.gpus:
        rows.append(("GPUs", ", ".join(map(str, job.gpus))))
    if job.last_progress is not None:
        rows.append(("now", one_line(pace_of(job.last_progress.event).detail)))
    return Group(heading, labelled_rows(rows, palette))


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _measured(jobs: list[Job], host_now: float, palette: Palette, width: int) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for job in jobs[:_MOST_ENDED]:
        mark = job_mark(job.state)
        pace = pace_of(job.last_progress.event) if job.last_progress is not None else None
        words = outcome_of(job) or ("" if pace is None else " ".join(filter(None, pace)))
        seen = (one_line(words), job.job_id if width >= _WIDE_FROM else "")
        table.add_row(
            Text(f"  {one_line(job.agent)}", style=palette.foreground),
            Text(f"{mark.glyph} {mark.word}", style=palette[mark.color]),
            Text(age_of(job, host_now), style=palette.foreground),
            Text("  ".join(filter(None, seen)), style=palette.foreground, overflow="ellipsis", no_wrap=True),
        )
    return table
