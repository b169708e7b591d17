"""A run in full: each stage with its time, job and reason, then what its jobs made and from what."""

import shlex

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.state.host import HostState
from console.state.moments import format_moment
from console.state.sanitize import one_line
from console.state.units import format_duration, format_percent
from console.ui.views.extraction import extraction_view
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from console.ui.words import age_of, below_root, job_mark, outcome_of, pace_of, run_name, stage_mark
from remote.protocol.jobs import ArtifactRef, Job, is_over
from remote.protocol.progress import StageDone, StageFailed, StageName, StageRunning, StageSkipped, StageState
from remote.protocol.specs import RunSpec

_NARROW = 100
_LABELS = 12
"""Columns of what stands before a row."""


def pipeline_view(state: HostState, host_now: float, palette: Palette, width: int) -> RenderableType:
    """The newest run, and extractions by themselves; says what starts a run while there is none."""
    run = state.newest_run()
    panels = (extraction_view(state, job, palette) for job in state.extractions_to_show())
    extractions = [panel for panel in panels if panel is not None]
    if run is None:
        nothing = Text("no run yet: press r to plan one from a preset or a run file", style=palette.quiet)
        return Group(nothing, *extractions)
    stages = state.stages_of(run.job_id)
    parts: list[RenderableType] = [
        _heading(run, host_now, palette, width),
        Text(),
        _stages(stages, host_now, palette, width),
        *extractions,
        Text("\nJobs", style=f"bold {palette.primary}"),
        _jobs(state.children(run.job_id), host_now, palette, width),
    ]
    made = [
        (output.kind, f"{one_line(below_root(output.path, state))}  {output.manifest_sha256[:12]}")
        for output in _outputs(state, run)
    ]
    if made:
        parts += [
            Text("\nMade, with the hash of its manifest", style=f"bold {palette.primary}"),
            labelled_rows(made, palette, _LABELS),
        ]
    parts.append(Text("\nFrom", style=f"bold {palette.primary}"))
    parts.append(labelled_rows(_provenance(run, state), palette, _LABELS))
    return Group(*parts)


def _heading(run: Job, host_now: float, palette: Palette, width: int) -> Text:
    mark = job_mark(run.state)
    text = Text(f"run {run_name(run)} ", style=f"bold {palette.primary}")
    text.append(f"{mark.glyph} {mark.word} {age_of(run, host_now)}", style=palette[mark.color])
    if width >= _NARROW:
        started = format_moment(run.created_at)
        text.append(f"  {run.job_id}, started {started} by {one_line(run.created_by)}", style=palette.quiet)
    return text


def _stages(stages: list[tuple[StageName, StageState]], host_now: float, palette: Palette, width: int) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for stage, stage_state in stages:
        mark = stage_mark(stage_state)
        duration, words = _stage_words(stage_state, host_now)
        table.add_row(
            Text(f"{mark.glyph} {stage}", style=palette[mark.color]),
            Text(mark.word or "to come", style=palette[mark.color]),
            Text(duration, style=palette.foreground, justify="right"),
            Text(words, style=palette.foreground, overflow="ellipsis", no_wrap=width < _NARROW),
        )
    return table


def _stage_words(state: StageState, host_now: float) -> tuple[str, str]:
    match state:
        case StageRunning(since=since, fraction=fraction, eta_s=eta, detail=detail):
            words = [] if fraction is None else [format_percent(fraction)]
            words += [] if eta is None else [f"{format_duration(eta)} left"]
            return format_duration(max(0.0, host_now - since)), "  ".join([*words, one_line(detail)])
        case StageDone(started_at=start, ended_at=end, detail=detail):
            return format_duration(end - start), one_line(detail)
        case StageSkipped(detail=detail):
            return "", one_line(detail)
        case StageFailed(started_at=start, ended_at=end, reason=reason):
            return format_duration(end - start), one_line(reason) or "no reason given"
        case _:
            return "", ""


def _jobs(jobs: list[Job], host_now: float, palette: Palette, width: int) -> RenderableType:
    if not jobs:
        return Text("  none started yet", style=palette.quiet)
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for job in jobs:
        mark = job_mark(job.state)
        words = outcome_of(job) if is_over(job.state) else _now(job)
        if width >= _NARROW:
            words = "  ".join(filter(None, (words, job.job_id)))
        table.add_row(
            Text(f"  {one_line(job.agent)}", style=palette.foreground),
            Text(f"{mark.glyph} {mark.word}", style=palette[mark.color]),
            Text(age_of(job, host_now), style=palette.foreground),
            Text(words, style=palette.quiet, overflow="ellipsis", no_wrap=True),
        )
    return table


def _now(job: Job) -> str:
    told = "" if job.last_progress is None else one_line(pace_of(job.last_progress.event).detail)
    return told or one_line(job.last_line)


def _outputs(state: HostState, run: Job) -> list[ArtifactRef]:
    """Each once: a run says again what its jobs made."""
    jobs = [*state.children(run.job_id), run]
    outputs = [output for job in jobs if job.result is not None for output in job.result.outputs]
    return list({(output.path, output.manifest_sha256): output for output in outputs}.values())


def _provenance(run: Job, state: HostState) -> list[tuple[str, str]]:
    rows = []
    if isinstance(run.spec, RunSpec):
        config = run.spec.run
        rows = [
            ("target", config.target.model),
            ("train data", config.data.train),
            ("held out", config.data.evaluation),
            ("engine", config.engine.name),
        ]
    if state.welcome is not None:
        rows.append(("release", state.welcome.release[:12]))
    return [*rows, ("command", shlex.join(run.command))]
