"""The overview: everything that matters on one screen; under pressure history, charts and log give way, in that order."""

from textual.app import ComposeResult
from textual.screen import Screen

from console.state.alerts import alerts
from console.state.host import HostState
from console.state.link import Up
from console.ui.widgets.alert_line import AlertLine
from console.ui.widgets.charts import Charts
from console.ui.widgets.devices import Devices
from console.ui.widgets.host_lines import HostLines
from console.ui.widgets.jobs_table import JobsTable
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.log_pane import LogPane
from console.ui.widgets.palette import Palette
from console.ui.widgets.stage_strip import StageStrip
from console.ui.widgets.top_bar import TopBar
from remote.protocol.jobs import Job

_STALE_S = 5.0
_TALL_FROM = 30
"""Rows from which charts and all disks have room."""
_HIGH_FROM = 42
"""Rows from which charts are plots."""
_LEAST_JOBS, _MOST_JOBS = 5, 14
"""Rows of the jobs table, its heading included."""
_LAST_LINES = 2
"""Alerts and keys."""


class Overview(Screen[None]):
    """Renders a `HostState`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL_FROM, "-tall"), (_HIGH_FROM, "-high")]

    def compose(self) -> ComposeResult:
        """Top to bottom."""
        yield TopBar(id="top-bar")
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

    def show(
        self,
        state: HostState,
        shown_job: Job | None,
        now: float,
        host_now: float,
        palette: Palette,
        *,
        replay: str = "",
    ) -> None:
        """Render the state as it is at `now`."""
        found = alerts(state, now)
        stale = not isinstance(state.link, Up) or (state.sample_at is not None and now - state.sample_at > _STALE_S)
        rows = self.size.height
        self.query_one(TopBar).show(state, now, host_now, found, palette, replay=replay)
        self.query_one(StageStrip).show(state, host_now, palette, in_replay=bool(replay))
        self.query_one(Devices).show(state, palette, stale=stale)
        self.query_one(HostLines).show(state, palette, stale=stale, low=rows < _TALL_FROM)
        self.query_one(Charts).show(state, palette, high=rows >= _HIGH_FROM)
        self.query_one(JobsTable).show(state, shown_job, host_now, palette)
        self._share_rows()
        self.query_one(AlertLine).show(found)
        self.show_log(state, shown_job)

    def _share_rows(self) -> None:
        """Jobs and log share what the rest leaves: the jobs at most half of it, but never fewer than four of them."""
        fixed = (TopBar, StageStrip, Devices, HostLines, Charts)
        taken = sum(self.query_one(kind).outer_size.height for kind in fixed if self.query_one(kind).display)
        most = max(_LEAST_JOBS, min(_MOST_JOBS, (self.size.height - taken - _LAST_LINES) // 2))
        jobs = self.query_one(JobsTable)
        if jobs.styles.max_height is None or jobs.styles.max_height.value != most:
            jobs.styles.max_height = most

    def show_log(self, state: HostState, shown_job: Job | None) -> None:
        """Add what is new of the shown job's log."""
        if shown_job is None:
            self.query_one(LogPane).show(None, "no job yet" if state.jobs_known else "log")
            return
        self.query_one(LogPane).show(state.log_of(shown_job.job_id), f"log of {shown_job.job_id}")
