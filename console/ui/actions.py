"""What the keys do: dialogs, and operations after a person has seen what will happen."""

import os
import shlex
from functools import partial

from rich.text import Text
from textual import work
from textual.app import App

from console import operations
from console.config.hosts import price_of
from console.errors import UnknownHostKey
from console.state.cost import cost_of
from console.state.host import HostState
from console.state.link import Closed
from console.state.sanitize import sanitize
from console.state.units import format_bytes
from console.ui.clipboard import copy_text
from console.ui.host_feed import HostFeed
from console.ui.keymap import ACTIONS, PAGES, Action
from console.ui.login import ask_for_trust
from console.ui.messages import (
    ActionWanted,
    AlertsOpened,
    CopyWanted,
    JobOpened,
    LayoutChosen,
    LogViewWanted,
    PageWanted,
)
from console.ui.screens.approvals import ApprovalsScreen
from console.ui.screens.detail import DetailScreen, DiagnosesScreen, GpusScreen
from console.ui.screens.dialogs import AskLine, Confirm, Notice, PlanDialog, error_text, stop_question
from console.ui.screens.help_here import HelpHere
from console.ui.screens.jump import JumpScreen, targets
from console.ui.screens.log import LogScreen
from console.ui.session import HostSession
from console.ui.texts import help_text, verdict_text
from console.ui.themes import load_themes
from console.ui.widgets.log_pane import LogPane
from remote.protocol.errors import ErrorInfo
from remote.protocol.jobs import Job, is_over


class Actions(App[int]):
    """The methods that the table in `keymap` names; what they act on is the business of the app that inherits them.

    Textual's metaclass leaves no room for that of abstract classes, so what the app must define raises NotImplementedError here.
    """

    actions: tuple[Action, ...] = ACTIONS
    own_keys: dict[str, str]

    @property
    def feed(self) -> HostFeed:
        """The host that is shown."""
        raise NotImplementedError

    @property
    def nothing_yet(self) -> str:
        """What to say while there is no job."""
        return "There is no job yet; press r to run something."

    def clock(self) -> float:
        """Now, in seconds of the clock that link states and ages count with."""
        raise NotImplementedError

    def shown_job(self) -> Job | None:
        """The job whose log is shown."""
        return self.feed.shown_job()

    @property
    def _state(self) -> HostState:
        return self.feed.state

    @property
    def _session(self) -> HostSession | None:
        return self.feed.session

    def remember(self, **changes: str | bool) -> None:
        """Keep what a person has chosen for the next time."""
        raise NotImplementedError

    def render_state(self) -> None:
        """Draw everything anew."""
        raise NotImplementedError

    def _sync_watch(self) -> None:
        raise NotImplementedError

    def _why_not(self, action: str) -> str | None:
        raise NotImplementedError

    def _render_logs(self) -> None:
        raise NotImplementedError

    async def on_action_wanted(self, message: ActionWanted) -> None:
        """What a key does by a click, or why it would do nothing."""
        message.stop()
        reason = self._why_not(message.action)
        if reason is None:
            await self.run_action(message.action)
        else:
            self._say_why(reason)

    def _say_why(self, reason: str) -> None:
        self.clear_notifications()
        self.notify(reason, markup=False)

    def on_layout_chosen(self, message: LayoutChosen) -> None:
        """Keep it, and draw it at once."""
        message.stop()
        self.remember(layout=message.layout)
        self.render_state()

    def on_page_wanted(self, message: PageWanted) -> None:
        """The same by a click."""
        message.stop()
        self.action_page(message.name)

    def on_job_opened(self, message: JobOpened) -> None:
        """Show it on the whole screen."""
        self.feed.selected = message.job_id
        self.action_log()

    def show_error(self, info: ErrorInfo) -> None:
        """What did not work, and what to do next."""
        self.push_screen(Notice("That did not work", error_text(info)))

    def action_log(self) -> None:
        """The shown job's log on the whole screen."""
        job = self.shown_job()
        if job is None:
            self.notify(self.nothing_yet)
        elif not isinstance(self.screen, LogScreen):
            self.push_screen(LogScreen(job.job_id), callback=lambda _: self._sync_watch())
            self._sync_watch()
            self.call_after_refresh(self._render_logs)

    def action_follow(self) -> None:
        """Follow the log that is on the screen."""
        self.screen.query_one(LogPane).follow()

    def on_log_view_wanted(self, message: LogViewWanted) -> None:
        """Every log is laid out so, also the next time."""
        message.stop()
        self.remember(log_wraps=message.wraps, log_filter=message.kind)
        self._render_logs()

    def on_copy_wanted(self, message: CopyWanted) -> None:
        """Copy lines of a log, and say where they went."""
        message.stop()
        if message.lines:
            self.run_worker(self._copy(message), group="copy", exclusive=True, exit_on_error=False)
        else:
            self.notify("Nothing is marked: space marks lines, and so does the mouse.", markup=False)

    async def _copy(self, message: CopyWanted) -> None:
        count, text = len(message.lines), "\n".join(message.lines) + "\n"
        try:
            copied = await copy_text(text, message.name, os.environ, in_browser=self.is_web, to_file=message.to_file)
        except OSError as error:
            self.notify(f"Nothing was copied: {error}", severity="warning", markup=False)
            return
        if copied.sequence and self._driver is not None:
            self._driver.write(copied.sequence)
        lines = "1 line" if count == 1 else f"{count:,} lines"
        self.notify(f"{lines} ({format_bytes(len(text.encode()))}) went {copied.words}.", markup=False, timeout=10)

    def action_theme(self) -> None:
        """The next of our themes."""
        names = [theme.name for theme in load_themes().themes]
        current = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(current + 1) % len(names)]
        self.remember(theme=self.theme)
        self.clear_notifications()
        self.notify(f"Theme {self.theme}", markup=False, timeout=2)
        self.render_state()

    @work(exclusive=True, group="jump", exit_on_error=False)
    async def action_jump(self) -> None:
        """A letter on everything that can be gone to."""
        go = await self.push_screen_wait(JumpScreen(targets(self.screen)))
        if go is not None:
            go()

    def action_pages(self) -> None:
        """The pages by their names."""
        pages = [(f"{page.title} ({page.key})", partial(self.action_page, page.name), page.help) for page in PAGES]
        self.search_commands(pages, placeholder="A page")

    def action_page(self, name: str) -> None:
        """Open a page by its name."""
        raise NotImplementedError

    def action_help_here(self) -> None:
        """What has the keyboard, and its keys; once more closes it."""
        if isinstance(self.screen, HelpHere):
            self.screen.dismiss()
        else:
            self.push_screen(HelpHere(self.screen))

    def action_help_panel(self) -> None:
        """Keys and meanings."""
        self.push_screen(Notice("Help", help_text(self.actions, self.own_keys)))

    def action_diagnoses(self) -> None:
        """What is wrong, in full."""
        self._open_detail(DiagnosesScreen())

    def on_alerts_opened(self, message: AlertsOpened) -> None:
        """The same from the line of alerts."""
        message.stop()
        self.action_diagnoses()

    def action_gpus(self) -> None:
        """Each device in full; how they are connected is asked of the host the first time."""
        self._open_detail(GpusScreen())
        if self._state.topology is None:
            self.feed.ask_topology()

    def action_approvals(self) -> None:
        """The inbox."""
        if self._session is None:
            self.notify("Not connected yet.")
        elif not isinstance(self.screen, ApprovalsScreen):
            self._open_detail(ApprovalsScreen(self._session, self._state.name))

    def _open_detail(self, screen: DetailScreen) -> None:
        if isinstance(self.screen, DetailScreen):
            self.pop_screen()
        self.push_screen(screen)
        self.call_after_refresh(self.render_state)

    def action_command(self) -> None:
        """The exact command of the shown job."""
        job = self.shown_job()
        if job is None:
            self.notify(self.nothing_yet)
            return
        self.push_screen(
            Notice(f"Command of {job.job_id} on {self._state.name}", Text(sanitize(shlex.join(job.command))))
        )

    def action_leave(self) -> None:
        """Close the screen; the host does not notice."""
        self.exit(0)

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def meet_host(self, feed: HostFeed, unknown: UnknownHostKey) -> None:
        """Ask whether to trust a host that was never met; connect again after a yes."""
        feed.state.apply(Closed(error=unknown.info), self.clock())
        if await ask_for_trust(self, feed.state.name, unknown):
            feed.listen()

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def action_run(self) -> None:
        """Ask what to run, show the plan, start it."""
        feed, session = self.feed, self._session  # a person may go to another host before the plan is there
        if session is None:
            self.notify("Not connected yet.")
            return
        question = AskLine(
            f"Run on {feed.state.name}",
            "The name of a preset, or the path of a run file (TOML) on this machine:",
            "embedded" if feed.state.name == operations.EMBEDDED else "",
            then="Enter plans it and shows the plan.",
        )
        source = await self.push_screen_wait(question)
        if source is None:
            return
        self.notify("Planning: the host looks at the inputs and at what is there already.", timeout=3)
        plan = await session.plan_run(source)
        self.clear_notifications()
        if await self.push_screen_wait(
            PlanDialog(plan, feed.state.name, cost_of(price_of(feed.state.name), plan.seconds))
        ):
            job = await session.start_run(plan)
            feed.selected = None
            self.remember(job="")
            self.notify(f"Started {job.job_id} on {feed.state.name}. It goes on without this screen.", markup=False)

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def action_stop(self) -> None:
        """Ask, then stop the shown job."""
        job, session = self.shown_job(), self._session
        if job is None or session is None or is_over(job.state):
            self.notify("The selected job is not running." if job is not None else self.nothing_yet)
            return
        children = [child for child in self._state.children(job.job_id) if not is_over(child.state)]
        body = stop_question(job, children, self._state.name)
        if await self.push_screen_wait(Confirm("Stop?", body, yes="Stop it")):
            await session.stop_job(job)
            self.notify(f"Stopping {job.job_id}.", markup=False)

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def action_verdict(self) -> None:
        """The verdict of the newest run."""
        run, session, host = self._state.newest_run(), self._session, self._state.name
        if run is None or session is None:
            self.notify(self.nothing_yet)
            return
        verdict = await session.read_verdict(run.job_id)
        self.push_screen(Notice(f"Verdict of {run.job_id} on {host}", verdict_text(verdict, run.job_id, host)))
