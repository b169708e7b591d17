"""The jobs: the newest run first, what it started below it. Cells are compared before they are written: a write redraws."""

from rich.text import Text
from textual.binding import Binding
from textual.widgets import DataTable

from console.state.forecast import pace_words
from console.state.host import HostState
from console.state.sanitize import one_line
from console.state.units import format_duration
from console.ui.messages import JobOpened, JobSelected
from console.ui.widgets.palette import Palette
from console.ui.words import age_of, job_mark, outcome_of, pace_of, run_name
from remote.protocol.jobs import Finished, Job, is_over
from remote.protocol.telemetry import JobSample

_COLUMNS = (("agent", 12), ("state", 10), ("time", 8), ("rate", 12))
_ETA = ("left", 8)
_LAST_COLUMN = "now"
_WIDE_FROM = 110
_MOST_JOBS = 200


class JobsTable(DataTable[Text]):
    """One row a job, keyed by its id; the estimate of the time left has a column where there is room."""

    BINDINGS = [Binding("enter", "select_cursor", "Show the whole log", show=False)]
    HELP = (
        "The jobs of the host, the newest run first and what it started below it: how long each has been at work, how fast it "
        "is, and what it said last, or how it ended. The log below is that of the row with the cursor, and so are the keys that "
        "stop a job or show its command."
    )

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, cursor_type="row", show_header=True, cursor_foreground_priority="renderable")
        self._shown: dict[str, list[Text]] = {}
        self._placed: str | None = None
        self._laid_out: list[tuple[str, int]] = []

    def show(self, state: HostState, shown_job: Job | None, host_now: float, palette: Palette) -> None:
        """Render the jobs with the cursor on the one whose log is shown; rows are rebuilt only when their order changed."""
        columns = _columns(self.size.width)
        jobs = state.shown_jobs()[:_MOST_JOBS]
        cells = {job.job_id: _cells(job, state, host_now, columns, palette) for job in jobs}
        if columns != self._laid_out or list(cells) != list(self._shown):
            self._rebuild(columns, cells)
        else:
            for job_id, row in cells.items():
                for (column, _), old, new in zip(columns, self._shown[job_id], row, strict=True):
                    # Rich compares texts without the style of the whole, which another theme or state changes.
                    if old != new or old.style != new.style:
                        self.update_cell(job_id, column, new)
        self._shown = cells
        if shown_job is not None and shown_job.job_id in cells:
            self._place_cursor(shown_job.job_id)

    def _rebuild(self, columns: list[tuple[str, int]], cells: dict[str, list[Text]]) -> None:
        with self.prevent(DataTable.RowHighlighted):
            self.clear(columns=columns != self._laid_out)
            if columns != self._laid_out:
                self._laid_out = columns
                for label, width in columns:
                    self.add_column(label, key=label, width=width)
            for job_id, row in cells.items():
                self.add_row(*row, key=job_id)

    def _place_cursor(self, job_id: str) -> None:
        self._placed = job_id
        row = self.get_row_index(job_id)
        if self.cursor_row != row:
            with self.prevent(DataTable.RowHighlighted):
                self.move_cursor(row=row)
            if row < self.size.height - 1:
                self.scroll_to(y=0, animate=False)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Tell which job a person went to; the cursor that follows the shown job is nobody's choice."""
        event.stop()
        if event.row_key.value is not None and event.row_key.value != self._placed:
            self.post_message(JobSelected(event.row_key.value))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter or a click."""
        event.stop()
        if event.row_key.value is not None:
            self.post_message(JobOpened(event.row_key.value))


def _columns(width: int) -> list[tuple[str, int]]:
    columns = [*_COLUMNS, _ETA] if width >= _WIDE_FROM else list(_COLUMNS)
    padding = 2 * (len(columns) + 1)
    taken = sum(each for _, each in columns) + padding
    return [*columns, (_LAST_COLUMN, max(10, width - taken - 1))]


def _cells(job: Job, state: HostState, host_now: float, columns: list[tuple[str, int]], palette: Palette) -> list[Text]:
    mark = job_mark(job.state)
    rate, detail = _pace(job, state.sample_of(job))
    texts = {
        "agent": Text(f"{' ' if job.run_id else ''}{one_line(job.agent)}", style=palette.foreground),
        "state": Text(f"{mark.glyph} {mark.word}", style=palette[mark.color]),
        "time": Text(age_of(job, host_now), style=palette.foreground),
        "rate": Text(rate, style=palette.foreground),
        "left": Text(_time_left(job, state), style=palette.foreground),
        "now": Text(detail, style=palette.quiet if is_over(job.state) else palette.foreground),
    }
    for label, width in columns:
        texts[label].truncate(width, overflow="ellipsis")
    return [texts[label] for label, _ in columns]


def _pace(job: Job, sample: JobSample | None) -> tuple[str, str]:
    """The rate, and what the job says now or why it ended; the run that stopped its own job needs no name."""
    rate, detail = ("", "") if job.last_progress is None else pace_of(job.last_progress.event)
    if isinstance(job.state, Finished):
        rate = ""
        succeeded = job.state.outcome == "succeeded"
        detail = outcome_of(job) or detail if succeeded else job.state.reason or detail
    words = one_line(detail or job.last_line)
    if sample is not None and not is_over(job.state):
        rate, words = _with_sample(sample, rate, words)
    if job.agent == "run":
        return rate, f"{run_name(job)} · {words}" if words else run_name(job)
    return rate, words.replace(job.run_id, "its run") if job.run_id else words


def _with_sample(sample: JobSample, rate: str, words: str) -> tuple[str, str]:
    """The newest reading's rates beside what the job said last; processes that stand still before all."""
    rates = [*pace_words(sample)]
    if rates and not rate:
        rate = rates.pop(0)
    more = [words, *(each for each in rates if not each.endswith(" tok/s"))]
    if sample.suspended_pids:
        more.insert(0, f"! {len(sample.suspended_pids)} of {sample.process_count} processes stopped")
    return rate, " · ".join(filter(None, more))


def _time_left(job: Job, state: HostState) -> str:
    eta = state.time_left_s(job)
    return "" if eta is None else format_duration(eta)
