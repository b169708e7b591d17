"""What a terminal shows that is too small for the screen: words that say how the host is, and how much room the screen needs."""

from rich.text import Text

from console.state.link import Closed, Connecting, Lost, Up
from console.state.sanitize import one_line
from console.state.units import format_percent
from console.ui.widgets.glance import Glance
from console.ui.widgets.lines import Lines
from console.ui.words import job_mark, run_name
from remote.protocol.jobs import is_over
from remote.protocol.progress import StageRunning

LEAST_COLUMNS, LEAST_ROWS = 46, 18
"""With fewer, eight devices, jobs and alerts cannot all be there."""

TOO_NARROW, TOO_LOW = "-too-narrow", "-too-low"
"""The classes that a screen has then; the style sheet leaves it this widget alone."""


class Cramped(Lines):
    """The gravest first, for whatever does not fit is cut off at the end."""

    def __init__(self) -> None:
        super().__init__(id="cramped", markup=False)

    def show(self, glance: Glance) -> None:
        """Render where the screen would be too small; nothing is drawn elsewhere."""
        if self.display:
            size = self.screen.size
            needs = f"This terminal has {size.width}x{size.height}: the screen needs 60x20, roost --plain any."
            self.put(Text("\n".join([*cramped_lines(glance), needs]), style=glance.palette.foreground))


def cramped_lines(glance: Glance) -> list[str]:
    """The host and its link, the gravest alert, the newest run with its stage, and jobs at work besides."""
    state = glance.state
    lines = [f"{state.name} {_link_word(glance)}"]
    lines += (
        [f"{len(glance.found)} alerts. {glance.found[0]}" if len(glance.found) > 1 else str(glance.found[0])]
        if glance.found
        else []
    )
    run = state.newest_run()
    if run is not None:
        mark = job_mark(run.state)
        lines.append(f"{mark.glyph} run {run_name(run)} {mark.word}")
        for stage, each in state.stages_of(run.job_id):
            if isinstance(each, StageRunning):
                lines.append(f"▶ {stage} {format_percent(each.fraction)} {one_line(each.detail)}")
    lone = [job for job in state.shown_jobs() if job.run_id is None and job.agent != "run" and not is_over(job.state)]
    lines += [f"{job_mark(job.state).glyph} {one_line(job.agent)} {job_mark(job.state).word}" for job in lone]
    return lines


def _link_word(glance: Glance) -> str:
    match glance.state.link:
        case Up():
            return "● connected"
        case Connecting():
            return "◌ connecting"
        case Lost():
            return "✗ link lost" if glance.state.welcome is not None else "✗ not reached"
        case Closed():
            return "✗ link closed"
