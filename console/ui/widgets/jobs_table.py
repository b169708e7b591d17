"""The jobs: live ones first. Cells are compared before they are written, because a write redraws."""

from rich.text import Text
from textual.widgets import DataTable

from console.state.host import HostState
from console.state.sanitize import one_line
from console.ui.messages import JobOpened, JobSelected
from console.ui.widgets.palette import Palette
from console.ui.words import age_of, job_mark, pace_of
from remote.protocol.jobs import Finished, Job

_COLUMNS = (("agent", 13), ("state", 10), ("time", 9), ("rate", 13), ("now", None))
_MOST_JOBS = 200


class JobsTable(DataTable[Text]):
    """One row a job, keyed by its id."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, show_header=True)
        self._shown: dict[str, list[Text]] = {}
        self._placed: str | None = None

    def on_mount(self) -> None:
        """Make the columns."""
        for label, width in _COLUMNS:
            self.add_column(label, key=label, width=width)

    def show(self, state: HostState, shown_job: Job | None, host_now: float, palette: Palette) -> None:
        """Render the jobs with the cursor on the one whose log is shown; rows are rebuilt only when their order changed."""
        jobs = state.ordered_jobs()[:_MOST_JOBS]
        cells = {job.job_id: _cells(job, host_now, palette) for job in jobs}
        if list(cells) != list(self._shown):
            self._rebuild(cells)
        else:
            for job_id, row in cells.items():
                for (column, _), old, new in zip(_COLUMNS, self._shown[job_id], row, strict=True):
                    if old != new:
                        self.update_cell(job_id, column, new)
        self._shown = cells
        if shown_job is not None and shown_job.job_id in cells:
            self._place_cursor(shown_job.job_id)

    def _rebuild(self, cells: dict[str, list[Text]]) -> None:
        with self.prevent(DataTable.RowHighlighted):
            self.clear()
            for job_id, row in cells.items():
                self.add_row(*row, key=job_id)

    def _place_cursor(self, job_id: str) -> None:
        self._placed = job_id
        row = self.get_row_index(job_id)
        if self.cursor_row != row:
            self.move_cursor(row=row)
            if row < self.size.height - 1:
                self.scroll_to(y=0, animate=False)

    def selected_job(self) -> str | None:
        """The job under the cursor."""
        if not self.row_count:
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Tell which job is meant."""
        event.stop()
        if event.row_key.value is not None and event.row_key.value != self._placed:
            self.post_message(JobSelected(event.row_key.value))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter or a click."""
        event.stop()
        if event.row_key.value is not None:
            self.post_message(JobOpened(event.row_key.value))


def _cells(job: Job, host_now: float, palette: Palette) -> list[Text]:
    mark = job_mark(job.state)
    indent = " " if job.run_id else ""
    rate, detail = ("", "") if job.last_progress is None else pace_of(job.last_progress.event)
    if isinstance(job.state, Finished):
        rate = ""
        detail = detail if job.state.outcome == "succeeded" else job.state.reason or detail
    return [
        Text(f"{indent}{one_line(job.agent)}", style=palette.foreground),
        Text(f"{mark.glyph} {mark.word}", style=palette[mark.color]),
        Text(age_of(job, host_now), style=palette.foreground),
        Text(rate, style=palette.foreground),
        Text(one_line(detail or job.last_line)[:160], style=palette.quiet),
    ]
