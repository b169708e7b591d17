"""The overview: everything that matters on one screen; under pressure history, charts and log give way, in that order."""

from textual.app import ComposeResult
from textual.screen import Screen

from console.state.host import HostState
from console.ui.keymap import OVERVIEW_ACTIONS, bindings
from console.ui.messages import LayoutChosen
from console.ui.widgets.alert_line import AlertLine
from console.ui.widgets.charts import Charts
from console.ui.widgets.cramped import LEAST_COLUMNS, LEAST_ROWS, TOO_LOW, TOO_NARROW, Cramped
from console.ui.widgets.devices import Devices
from console.ui.widgets.glance import Glance
from console.ui.widgets.host_lines import HostLines
from console.ui.widgets.jobs_table import JobsTable
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.log_pane import LogPane
from console.ui.widgets.page_tabs import PageTabs
from console.ui.widgets.stage_strip import StageStrip
from console.ui.widgets.top_bar import TopBar
from remote.protocol.jobs import Job

_SHORT_FROM = 23
"""Rows below which one line has to do for the stages, one for the disks, and three for the jobs."""
_TALL_FROM = 30
"""Rows from which charts and all disks have room."""
_HIGH_FROM = 42
"""Rows from which charts are plots."""
_PLOT_ROWS = 5
"""Rows of the plots, their headings included."""
_LEAST_JOBS, _MOST_JOBS = 5, 14
"""Rows of the jobs table, its heading included."""
_LAST_LINES = 2
"""Alerts and keys."""


LAYOUTS = ("shared", "jobs", "log")
"""Who has the room that the rest leaves: jobs and log, or one of them."""


class Overview(Screen[None]):
    """Renders a `HostState`; a `layout` that is none of `LAYOUTS` is the first."""

    HORIZONTAL_BREAKPOINTS = [(0, TOO_NARROW), (LEAST_COLUMNS, "-narrow"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [
        (0, TOO_LOW),
        (LEAST_ROWS, "-tiny"),
        (_SHORT_FROM, "-short"),
        (_TALL_FROM, "-tall"),
        (_HIGH_FROM, "-high"),
    ]

    BINDINGS = bindings(OVERVIEW_ACTIONS)

    def __init__(self, layout: str = "") -> None:
        super().__init__()
        self._layout = layout if layout in LAYOUTS else LAYOUTS[0]

    def action_next_layout(self) -> None:
        """The next of the layouts."""
        self._layout = LAYOUTS[(LAYOUTS.index(self._layout) + 1) % len(LAYOUTS)]
        self.post_message(LayoutChosen(self._layout))

    def compose(self) -> ComposeResult:
        """Top to bottom."""
        yield Cramped()
        yield TopBar(id="top-bar")
        yield PageTabs(at_home=True)
        yield StageStrip(id="stage-strip")
        yield Devices(id="devices")
        yield HostLines(id="host-lines")
        yield Charts(id="charts")
        yield JobsTable(id="jobs")
        yield LogPane(id="log")
        yield AlertLine(id="alerts")
        yield KeyLine()

    def on_mount(self) -> None:
        """The jobs have the keyboard."""
        self.query_one(JobsTable).focus()

    def show(self, glance: Glance) -> None:
        """Render a look at the host."""
        state, palette, rows = glance.state, glance.palette, self.size.height
        self.query_one(TopBar).show(state, glance.now, glance.host_now, glance.found, palette, replay=glance.replay)
        self.query_one(PageTabs).show("overview", palette, columns=self.size.width)
        self.query_one(StageStrip).show(
            state, glance.host_now, palette, in_replay=bool(glance.replay), low=rows < _SHORT_FROM
        )
        self.query_one(Devices).show(state, palette, stale=glance.stale)
        self.query_one(HostLines).show(
            state, palette, stale=glance.stale, low=rows < _TALL_FROM, disk_alone=rows < _SHORT_FROM
        )
        self.query_one(Charts).show(state, palette, rows=_PLOT_ROWS if rows >= _HIGH_FROM else 1)
        self.query_one(JobsTable).show(state, glance.shown_job, glance.host_now, palette)
        self._share_rows()
        self.query_one(Cramped).show(glance)
        self.query_one(AlertLine).show(glance.found)
        self.show_log(state, glance.shown_job)

    def _share_rows(self) -> None:
        """Jobs and log share what the rest leaves: the jobs at most half of it, but never fewer than four of them."""
        fixed = (TopBar, PageTabs, StageStrip, Devices, HostLines, Charts)
        taken = sum(self.query_one(kind).outer_size.height for kind in fixed if self.query_one(kind).display)
        left = self.size.height - taken - _LAST_LINES
        least = _LEAST_JOBS if self.size.height >= _SHORT_FROM else _LEAST_JOBS - 1
        match self._layout:
            case "jobs":
                most = left
            case "log":
                most = least
            case _:
                most = max(least, min(_MOST_JOBS, left // 2))
        jobs = self.query_one(JobsTable)
        self.set_class(self._layout == "jobs", "-without-log")
        if jobs.styles.max_height is None or jobs.styles.max_height.value != most:
            jobs.styles.max_height = most

    def show_log(self, state: HostState, shown_job: Job | None) -> None:
        """Add what is new of the shown job's log."""
        if shown_job is None:
            self.query_one(LogPane).show(None, "no job yet" if state.jobs_known else "log")
            return
        self.query_one(LogPane).show(state.log_of(shown_job.job_id), f"log of {shown_job.job_id}")
