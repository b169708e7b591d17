"""What jobs tell of draft vocabularies: their size, how much they cover, where they lie."""

from rich.console import Group, RenderableType
from rich.text import Text

from console.state.host import HostState
from console.state.sanitize import one_line
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from console.ui.words import job_mark
from remote.protocol.jobs import Job

_AGENT = "vocabulary"


def vocabulary_view(state: HostState, palette: Palette) -> RenderableType:
    """Each mapping that a job made or copied, the newest first."""
    jobs = [job for job in state.ordered_jobs() if job.agent == _AGENT]
    if not jobs:
        return Text("no mapping yet: a run builds or copies one after its extraction", style=palette.quiet)
    return Group(*[_mapping(job, palette) for job in jobs])


def _mapping(job: Job, palette: Palette) -> RenderableType:
    mark = job_mark(job.state)
    heading = Text(f"{mark.glyph} {mark.word}  ", style=palette[mark.color])
    heading.append(job.job_id, style=palette.foreground)
    summary = job.result.summary if job.result is not None else {}
    outputs = job.result.outputs if job.result is not None else []
    rows = [(key.replace("_", " "), one_line(str(value))) for key, value in summary.items()]
    rows += [(output.kind, f"{one_line(output.path)}  {output.manifest_sha256[:12]}") for output in outputs]
    return Group(heading, labelled_rows(rows, palette, 18), Text())
