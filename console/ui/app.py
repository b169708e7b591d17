"""The app: wires a host's events to the state, the state to the screens, and keys to the operations."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path

import msgspec
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import DescendantFocus, Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Input
from textual.worker import Worker, WorkerState

from console import operations
from console.config.notifications import NotificationConfig
from console.config.screen_memory import Recalled, ScreenMemory
from console.errors import ConsoleError, UnknownHostKey
from console.state.alerts import alerts
from console.state.host import HostState
from console.state.link import Closed, LinkState, Up
from console.state.sanitize import sanitize
from console.ui.actions import Actions
from console.ui.attention import SEVERITIES, Attention
from console.ui.availability import why_not
from console.ui.commands import ActionCommands
from console.ui.host_feed import LISTEN, HostFeed
from console.ui.host_feeds import ConnectTo, HostFeeds
from console.ui.keymap import bindings, rebound
from console.ui.login import ask_passphrase
from console.ui.messages import AskWanted, HostWanted, JobSelected
from console.ui.own_files import read_own_files, version
from console.ui.pages.catalog import PAGE_KINDS
from console.ui.pages.hosts import HostsPage
from console.ui.pages.logs import LogsPage
from console.ui.pages.page import Page
from console.ui.screens.detail import DetailScreen
from console.ui.screens.log import LogScreen
from console.ui.screens.overview import Overview
from console.ui.session import Connect, HostSession
from console.ui.themes import DEFAULT, WITHOUT_COLOR
from console.ui.views.host_cards import HostLook
from console.ui.widgets.glance import Glance
from console.ui.widgets.log_pane import LogPane
from console.ui.widgets.log_reader import LogReader
from console.ui.widgets.palette import Palette
from console.ui.widgets.top_bar import TopBar
from console.ui.words import job_mark, run_name
from remote.protocol.frames import Event, JobChanged, Telemetry
from remote.protocol.jobs import is_over
from remote.protocol.notifications import Notification

_DRAIN_S = 0.1
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM
_REFRESH_S = 1.0
_OWN_FILES_S = 2.0


Keep = Callable[[ScreenMemory], str]
"""Keeps what the screen shall remember; what went wrong, or nothing."""


_NOTHING = Recalled(ScreenMemory())


class RoostApp(Actions):
    """The console on one host; `recalled` is how it was left the last time, `keep` is called whenever that changes."""

    TITLE = "Roost"
    CSS_PATH = Path(__file__).parent / "styles/roost.tcss"
    BINDINGS = [*bindings(), Binding("ctrl+c", "leave", show=False, priority=True)]
    COMMANDS = {ActionCommands}

    def __init__(
        self,
        host_name: str,
        connect: Connect,
        *,
        recalled: Recalled = _NOTHING,
        keep: Keep | None = None,
        notifications: NotificationConfig | None = None,
        connect_to: ConnectTo | None = None,
    ) -> None:
        # Without colour Textual greys everything, unless the colours are the terminal's own: then it leaves them out.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.feeds = HostFeeds(HostFeed(host_name, connect, self), self, connect_to)
        self._memory, self._memory_problem = recalled
        self._keep = keep
        self._attention = None if notifications is None else Attention(notifications, self._write_raw, self._tell_one)
        self._overview = Overview(self._memory.layout)
        self._job_to_find = self._memory.job if self._memory.host == host_name else ""
        self._pages = {name: kind() for name, kind in PAGE_KINDS.items()}
        self._keys: set[str] = set()
        self._take_own_files()
        chosen = self._memory.theme if self._memory.theme in self.available_themes else DEFAULT
        self.theme = WITHOUT_COLOR if self.no_color else chosen

    @property
    def feed(self) -> HostFeed:
        """The host that is shown."""
        return self.feeds.shown

    def get_default_screen(self) -> Overview:
        """The overview is what lies under everything."""
        return self._overview

    def compose(self) -> ComposeResult:
        """Nothing beside the screens."""
        yield from ()

    def on_mount(self) -> None:
        """Start listening and rendering."""
        self.animation_level = "none"
        for name, page in self._pages.items():
            self.install_screen(page, name)
        operations.ask_passphrases_with(partial(ask_passphrase, self))
        if self._memory.page in self._pages:
            self.action_page(self._memory.page)
        self.feed.listen()
        if not self.is_headless:
            # Textual leaves this signal to Python, which ends at once and leaves the screen's drawing in the terminal.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit, _ENDED_BY_SIGTERM)
        self._apply_keys()
        self._tell([*filter(None, [self._memory_problem]), *self._own.problems])
        self.set_interval(_DRAIN_S, self._drain)
        self.set_interval(_OWN_FILES_S, self.reload_own_files)
        self.set_interval(_REFRESH_S, self.render_state)
        self.call_after_refresh(self.render_state)

    def remember(self, **changes: str | bool) -> None:
        """Keep what a person has chosen for the next time: fields of `ScreenMemory`."""
        memory = msgspec.structs.replace(self._memory, **changes)
        if memory != self._memory:
            self._memory = memory
            self._tell(filter(None, [self._keep(memory) if self._keep is not None else ""]))

    def reload_own_files(self) -> None:
        """Take over what was changed in a file of themes or keys; what cannot be read there is told and left out."""
        if version() == self._own_version:
            return
        told = self._own.problems
        self._take_own_files()
        self._tell(problem for problem in self._own.problems if problem not in told)
        self._apply_keys()
        self.mutate_reactive(App.theme)
        self.render_state()

    def _take_own_files(self) -> None:
        self._own_version = version()
        self._own = read_own_files(type(self).actions)
        self.own_keys = self._own.keys
        self.actions = rebound(type(self).actions, self.own_keys)
        for theme in self._own.themes:
            self.register_theme(theme)

    def _apply_keys(self) -> None:
        self.set_keymap(self.own_keys)

    def _tell(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self.notify(sanitize(problem), severity="warning", markup=False)

    @property
    def failure(self) -> Exception | None:
        """What ended the app other than by a person."""
        return self._exception

    def facts(self) -> dict[str, str]:
        """What a report of a failure says of the screen."""
        return {
            "screen": f"{self.screen_stack[-1] if self.screen_stack else 'none'} of {self.size.width}x{self.size.height}",
            "theme": self.theme,
            "link": type(self._state.link).__name__,
        }

    def _fatal_error(self) -> None:
        # Textual would print the values of all variables.
        self.bell()
        self._close_messages_no_wait()

    @property
    def palette(self) -> Palette:
        """The theme's colours for text that is drawn by hand."""
        return Palette.from_variables({**self.theme_variables, **self.get_css_variables()})

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's interface
        """A key that would do nothing now is not in the footer."""
        return self._why_not(action) is None

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Nothing on the screen moves by itself, and so the cursor of a line to type on does not blink."""
        if isinstance(event.widget, Input):
            event.widget.cursor_blink = False

    def on_key(self, event: Key) -> None:
        """A key that would do nothing says why."""
        action = next((each.action for each in self.actions if each.key == event.key), None)
        reason = None if action is None or isinstance(self.screen, ModalScreen) else self._why_not(action)
        if reason is not None:
            self._say_why(reason)

    def _why_not(self, action: str) -> str | None:
        return self._reasons([action])[action]

    def _reasons(self, actions: Iterable[str]) -> dict[str, str | None]:
        """Why each of `actions` would do nothing; None for those that would do something."""
        following = all(pane.following for pane in self.screen.query(LogPane))
        job, state = self.shown_job(), self._state
        return {
            action: why_not(action, state, job, following=following, nothing_yet=self.nothing_yet) for action in actions
        }

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """An operation that was refused is shown with its hint."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            if not isinstance(error, ConsoleError):
                raise error if error is not None else RuntimeError(event.worker.name)
            self.show_error(error.info)

    def run_for(self, feed: HostFeed, group: str, work: Coroutine[None, None, None]) -> None:
        """Run `work` in place of what still runs for the same host in the same group."""
        name = feed.state.name
        self.run_worker(
            self._watched_over(feed, group, work), group=f"{group} of {name}", exclusive=True, exit_on_error=False
        )

    def end_for(self, feed: HostFeed) -> None:
        """End all that `run_for` began for a host."""
        for worker in list(self.workers):
            if worker.group.partition(" of ")[2] == feed.state.name:
                worker.cancel()

    async def _watched_over(self, feed: HostFeed, group: str, work: Coroutine[None, None, None]) -> None:
        """A first connection that fails takes the keyboard; what nobody asked for by a key is only told."""
        if feed is not self.feed:
            operations.ask_passphrases_with(None)  # in this task alone: nobody asked for this host by a key
        try:
            await work
        except UnknownHostKey as unknown:
            if feed is self.feed:
                self.meet_host(feed, unknown)
            else:
                feed.state.apply(Closed(error=unknown.info), self.clock())
        except ConsoleError as error:
            if feed is not self.feed:
                if group == LISTEN:
                    feed.state.apply(Closed(error=error.info), self.clock())
            elif group == LISTEN:
                feed.state.apply(Closed(error=error.info), self.clock())
                self.show_error(error.info)
            else:
                self.notify(sanitize(error.info.message), severity="warning", markup=False)

    def _find_job(self) -> None:
        """The job that was chosen the last time is chosen again, unless it is over by now and another is at work."""
        job = self._state.jobs.get(self._job_to_find)
        if job is not None and self._state.jobs_known:
            self._job_to_find = ""
            if not is_over(job.state) or not self.feed.jobs_at_work:
                self.feed.selected = job.job_id

    def take_answer(self) -> None:
        """Draw what a host has answered."""
        self._find_job()
        self._sync_watch()
        self.render_state()

    def _drain(self) -> None:
        for feed in self.feeds:
            if feed is not self.feed and feed.drain().anything:
                feed.watch_logs(set())
        took = self.feed.drain()
        if took.anything:
            self._find_job()
            self._sync_watch()
        if took.logs:
            self._render_logs()

    def announce(self, feed: HostFeed, event: LinkState | Event) -> None:
        """Remember a host that was reached, and say when a run that was at work has ended."""
        if isinstance(event, Up) and feed is self.feed:
            name = feed.state.name
            self.remember(host=name, job=self._memory.job if self._memory.host == name else "")
        if isinstance(event, Telemetry):
            self._notice(feed.state.news_of(event.sample), feed.state)
        if not isinstance(event, JobChanged) or event.job.agent != "run" or not is_over(event.job.state):
            return
        before = feed.state.jobs.get(event.job.job_id)
        if before is not None and not is_over(before.state):
            key = "v shows the verdict" if event.job.result is not None else "its log says why"
            where = "" if feed is self.feed else f" on {feed.state.name}"
            self.notify(f"Run {run_name(event.job)}{where} is {job_mark(event.job.state).word}: {key}.", markup=False)

    def _notice(self, news: list[Notification], state: HostState) -> None:
        """Show what a host tells people, and have it noticed by who does not look; the end of a run has its own words above."""
        for each in news:
            job = state.jobs.get(each.job_id or "")
            if job is None or job.agent != "run":
                self.notify(
                    sanitize(each.text), title=sanitize(each.host_name), severity=SEVERITIES[each.kind], markup=False
                )
        if self._attention is not None:
            self._attention.call(news)

    def _write_raw(self, text: str) -> None:
        if self._driver is not None:
            self._driver.write(text)
            self._driver.flush()

    def _tell_one(self, problem: str) -> None:
        self._tell([problem])

    def _sync_watch(self) -> None:
        """Have the logs streamed that somebody can see."""
        shown = self.shown_job()
        names = {screen.job_id for screen in self.screen_stack if isinstance(screen, LogScreen)}
        names |= {shown.job_id} if shown is not None else set()
        for screen in self.screen_stack:
            names |= screen.wanted_logs(self._state) if isinstance(screen, Page) else set()
        self.feed.watch_logs(names)

    def clock(self) -> float:
        """The clock that ages and link states count with."""
        return time.monotonic()

    def stamp(self, session: HostSession) -> float:  # noqa: ARG002 - a replay asks its session
        """When the event that `session` just told has happened, on the same clock."""
        return time.monotonic()

    @property
    def replay_words(self) -> str:
        """Where a replay is; empty for a host."""
        return ""

    def refresh_now(self) -> None:
        """Take in what has arrived and draw it, without waiting for the next tick."""
        self._drain()
        self.render_state()

    def render_state(self) -> None:
        """Draw the state as it is now on the overview and on the screen that lies over it."""
        if not self._overview.is_mounted or not self._overview.query(TopBar):
            return
        glance = self._glance()
        for screen in self._seen_screens():
            if isinstance(screen, Page):
                screen.session = self._session
            if isinstance(screen, (Overview, Page)):
                screen.show(glance)
            elif isinstance(screen, DetailScreen):
                screen.show(glance.state, glance.now, glance.host_now, glance.palette)
        self._render_logs()
        self._refresh_keys()

    def _glance(self) -> Glance:
        now = self.clock()
        host_now = self._state.host_now(now)
        return Glance(
            self._state,
            self.shown_job(),
            now,
            time.time() if host_now is None else host_now,
            self.palette,
            alerts(self._state, now),
            self.replay_words,
        )

    def _seen_screens(self) -> list[Screen[object]]:
        """From the top down to the first that covers the terminal."""
        seen: list[Screen[object]] = []
        for screen in reversed(self.screen_stack):
            seen.append(screen)
            if not isinstance(screen, ModalScreen):
                break
        return seen

    def _refresh_keys(self) -> None:
        reasons = self._reasons(action.action for action in self.actions)
        keys = {action for action, reason in reasons.items() if reason is None}
        if keys != self._keys:
            self._keys = keys
            self.refresh_bindings()

    def _render_logs(self) -> None:
        for reader in self.screen.query(LogReader):
            reader.take_view(wraps=self._memory.log_wraps, kind=self._memory.log_filter)
        for screen in self._seen_screens():
            if isinstance(screen, LogScreen):
                screen.show_log(self._state)
            elif isinstance(screen, LogsPage):
                screen.show_content(self._glance())
            elif isinstance(screen, Overview):
                screen.show_log(self._state, self.shown_job())

    def on_job_selected(self, message: JobSelected) -> None:
        """Show the log of the job under the cursor."""
        self.feed.selected, self._job_to_find = message.job_id, ""
        self.remember(job=message.job_id)
        self._sync_watch()
        self._render_logs()

    def action_page(self, name: str) -> None:
        """Open a page by its name in `keymap.PAGES`; the overview is what lies under every other."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        page = self._pages.get(name)
        if not isinstance(page, HostsPage):
            self.feeds.look_away()
        self.remember(page="" if page is None else name)
        if page is not None:
            self.push_screen(page)
            self.ask_for(page)
        self._sync_watch()
        self.call_after_refresh(self.render_state)

    def look_at_hosts(self) -> tuple[list[HostLook], str]:
        """All configured hosts, which are opened for that, and what is wrong with the file that names them."""
        return self.feeds.look()

    def on_host_wanted(self, message: HostWanted) -> None:
        """Show another host on all pages, which forget what they had asked of the one before."""
        message.stop()
        if message.name != self.feed.state.name and self.feeds.choose(message.name) is None:
            self.notify("There is no other host here: a replay has one.")
            return
        self.action_page("overview")
        for name, kind in PAGE_KINDS.items():
            self.uninstall_screen(name)
            self._pages[name] = kind()
            self.install_screen(self._pages[name], name)
        if isinstance(self._state.link, Up):
            self.remember(host=message.name, job="")
        self._sync_watch()
        self.render_state()

    def on_ask_wanted(self, message: AskWanted) -> None:
        """Ask now, and go on from there."""
        message.stop()
        if isinstance(self.screen, Page):
            self.ask_for(self.screen)

    @work(exclusive=True, group="page", exit_on_error=False)
    async def ask_for(self, page: Page) -> None:
        """While a page is open that asks the host, ask now and then."""
        while self.screen is page and page.asks_every_s is not None:
            if self._session is not None and isinstance(self._state.link, Up):
                await page.ask_and_keep(self._session)
                self.render_state()
            await asyncio.sleep(page.asks_every_s)
