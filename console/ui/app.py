"""The app: wires a host's events to the state, the state to the screens, and keys to the operations."""

import asyncio
import os
import shlex
import sys
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.worker import Worker, WorkerState

from console import operations
from console.errors import ConsoleError, UnknownHostKey
from console.state.host import HostState
from console.state.link import Closed, LinkState, Up
from console.state.sanitize import one_line, sanitize
from console.ui.availability import is_possible
from console.ui.commands import ActionCommands
from console.ui.keymap import ACTIONS, bindings
from console.ui.login import ask_for_trust, ask_passphrase
from console.ui.messages import JobOpened, JobSelected
from console.ui.screens.dialogs import (
    AskRun,
    Confirm,
    Notice,
    PlanDialog,
    error_text,
    stop_question,
)
from console.ui.screens.log import LogScreen
from console.ui.screens.overview import Overview
from console.ui.session import ACTOR, Connect, HostSession, LiveSession
from console.ui.texts import help_text, verdict_text
from console.ui.themes import DEFAULT, load_themes
from console.ui.widgets.log_pane import LogPane
from console.ui.widgets.palette import Palette
from console.ui.words import job_mark, run_name
from remote.protocol.errors import ErrorInfo
from remote.protocol.frames import Event, JobChanged, LogData
from remote.protocol.jobs import Job, is_over

_DRAIN_S = 0.1
_REFRESH_S = 1.0
_QUEUE = 2000
_BACKGROUND = ("jobs", "watch")
"""What nobody asked for by a key: a failure of it is told without taking the keyboard."""


class RoostApp(App[int]):
    """The console on one host."""

    TITLE = "Roost"
    CSS_PATH = Path(__file__).parent / "styles/roost.tcss"
    BINDINGS = [*bindings(), Binding("ctrl+c", "leave", show=False, priority=True)]
    COMMANDS = {ActionCommands}

    def __init__(self, host_name: str, connect: Connect) -> None:
        super().__init__()
        self._connect = connect
        self._state = HostState(host_name)
        self._session: HostSession | None = None
        self._incoming: asyncio.Queue[LinkState | Event] = asyncio.Queue(_QUEUE)
        self._selected: str | None = None
        self._watched: tuple[dict[str, int], dict[str, int]] | None = None
        self._overview = Overview()
        self._keys: dict[str, bool | None] = {}
        for theme in load_themes():
            self.register_theme(theme)
        self.theme = DEFAULT

    def get_default_screen(self) -> Overview:
        """The overview is what lies under everything."""
        return self._overview

    def compose(self) -> ComposeResult:
        """Nothing beside the screens."""
        yield from ()

    def on_mount(self) -> None:
        """Start listening and rendering."""
        self.animation_level = "none"
        self.listen()
        self.set_interval(_DRAIN_S, self._drain)
        self.set_interval(_REFRESH_S, self._render_state)
        self.call_after_refresh(self._render_state)

    @property
    def palette(self) -> Palette:
        """The theme's colours for text that is drawn by hand."""
        return Palette.from_variables({**self.theme_variables, **self.get_css_variables()})

    @work(exclusive=True, group="listen", exit_on_error=False)
    async def listen(self) -> None:
        """Open the host and take in what it sends until the link is closed."""
        operations.ask_passphrases_with(partial(ask_passphrase, self))
        async with self._connect() as session:
            self._session = session
            async for event in session.events():
                await self._incoming.put(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's interface
        """None greys a key out while it would do nothing."""
        following = all(pane.following for pane in self.screen.query(LogPane))
        return True if is_possible(action, self._state, self.shown_job(), following=following) else None

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A first connection that failed, or an operation that was refused, is shown with its hint."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            if not isinstance(error, ConsoleError):
                raise error if error is not None else RuntimeError(event.worker.name)
            if isinstance(error, UnknownHostKey):
                self.meet_host(error)
                return
            if event.worker.group == "listen":
                self._state.apply(Closed(error=error.info), time.monotonic())
            if event.worker.group in _BACKGROUND:
                self.notify(sanitize(error.info.message), severity="warning", markup=False)
            else:
                self._show_error(error.info)

    def _drain(self) -> None:
        took = logs = False
        while not self._incoming.empty():
            event = self._incoming.get_nowait()
            was_up = isinstance(self._state.link, Up)
            self._announce(event)
            self._state.apply(event, time.monotonic())
            took = True
            logs |= isinstance(event, LogData)
            if isinstance(event, Up) and not was_up:
                self.refresh_jobs()
        if took:
            self._sync_watch()
        if logs:
            self._render_logs()

    def _announce(self, event: LinkState | Event) -> None:
        """Say when a run that was at work has ended."""
        if not isinstance(event, JobChanged) or event.job.agent != "run" or not is_over(event.job.state):
            return
        before = self._state.jobs.get(event.job.job_id)
        if before is not None and not is_over(before.state):
            key = "v shows the verdict" if event.job.result is not None else "its log says why"
            self.notify(f"Run {run_name(event.job)} is {job_mark(event.job.state).word}: {key}.", markup=False)

    @work(exclusive=True, group="jobs", exit_on_error=False)
    async def refresh_jobs(self) -> None:
        """Ask for all jobs; after that the link streams what changes."""
        if self._session is not None:
            self._state.set_jobs(await self._session.list_jobs())
            self._watched = None
            self._sync_watch()
            self._render_state()

    def _sync_watch(self) -> None:
        """Ask for other streams when other jobs are of interest; their cursors are the link's business."""
        if not self._state.jobs_known:
            return
        shown = self.shown_job()
        names = {screen.job_id for screen in self.screen_stack if isinstance(screen, LogScreen)}
        names |= {shown.job_id} if shown is not None else set()
        logs = {name: self._state.log_of(name).cursor for name in sorted(names)}
        progress = self._state.wanted_progress()
        if self._watched is None or (set(logs), set(progress)) != (set(self._watched[0]), set(self._watched[1])):
            self._watched = (logs, progress)
            self.watch_host(logs, progress)

    @work(exclusive=True, group="watch", exit_on_error=False)
    async def watch_host(self, logs: dict[str, int], progress: dict[str, int]) -> None:
        """Choose what the host streams."""
        if self._session is not None:
            await self._session.watch(logs=logs, progress=progress)

    @property
    def jobs_at_work(self) -> list[Job]:
        """The jobs that go on when the screen is closed."""
        return [job for job in self._state.ordered_jobs() if not is_over(job.state)]

    def shown_job(self) -> Job | None:
        """The selected job, else the newest live one that writes a log, else the newest."""
        if self._selected in self._state.jobs:
            return self._state.jobs[self._selected]
        jobs, live = self._state.ordered_jobs(), self.jobs_at_work
        telling = [job for job in live if job.log_size and job.agent != "run"]
        return (telling or live or jobs or [None])[0]

    def refresh_now(self) -> None:
        """Take in what has arrived and draw it, without waiting for the next tick."""
        self._drain()
        self._render_state()

    def _render_state(self) -> None:
        if not self._overview.is_mounted:
            return
        now = time.monotonic()
        host_now = self._state.host_now(now)
        self._overview.show(
            self._state, self.shown_job(), now, time.time() if host_now is None else host_now, self.palette
        )
        self._render_logs()
        self._refresh_keys()

    def _refresh_keys(self) -> None:
        keys = {action.action: self.check_action(action.action, ()) for action in ACTIONS}
        if keys != self._keys:
            self._keys = keys
            self.refresh_bindings()

    def _render_logs(self) -> None:
        if isinstance(self.screen, LogScreen):
            self.screen.show_log(self._state)
        else:
            self._overview.show_log(self._state, self.shown_job())

    def on_job_selected(self, message: JobSelected) -> None:
        """Show the log of the job under the cursor."""
        self._selected = message.job_id
        self._sync_watch()
        self._render_logs()

    def on_job_opened(self, message: JobOpened) -> None:
        """Show it on the whole screen."""
        self._selected = message.job_id
        self.action_log()

    def _show_error(self, info: ErrorInfo) -> None:
        self.push_screen(Notice("That did not work", error_text(info)))

    def action_log(self) -> None:
        """The shown job's log on the whole screen."""
        job = self.shown_job()
        if job is None:
            self.notify("There is no job yet; press r to run something.")
        elif not isinstance(self.screen, LogScreen):
            self.push_screen(LogScreen(job.job_id), callback=lambda _: self._sync_watch())
            self._sync_watch()
            self.call_after_refresh(self._render_logs)

    def action_follow(self) -> None:
        """Follow the log that is on the screen."""
        self.screen.query_one(LogPane).follow()

    def action_theme(self) -> None:
        """The next of our themes."""
        names = [theme.name for theme in load_themes()]
        current = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(current + 1) % len(names)]
        self._render_state()

    def action_help_panel(self) -> None:
        """Keys and meanings."""
        self.push_screen(Notice("Help", help_text()))

    def action_command(self) -> None:
        """The exact command of the shown job."""
        job = self.shown_job()
        if job is None:
            self.notify("There is no job yet.")
            return
        self.push_screen(
            Notice(f"Command of {job.job_id} on {self._state.name}", Text(sanitize(shlex.join(job.command))))
        )

    def action_leave(self) -> None:
        """Close the screen; the host does not notice."""
        self.exit(0)

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def meet_host(self, unknown: UnknownHostKey) -> None:
        """Ask whether to trust a host that was never met; connect again after a yes."""
        self._state.apply(Closed(error=unknown.info), time.monotonic())
        if await ask_for_trust(self, self._state.name, unknown):
            self.listen()

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def action_run(self) -> None:
        """Ask what to run, show the plan, start it."""
        if self._session is None:
            self.notify("Not connected yet.")
            return
        source = await self.push_screen_wait(AskRun("embedded" if self._state.name == operations.EMBEDDED else ""))
        if source is None:
            return
        self.notify("Planning: the host looks at the inputs and at what is there already.", timeout=3)
        plan = await self._session.plan_run(source)
        self.clear_notifications()
        if await self.push_screen_wait(PlanDialog(plan, self._state.name)):
            job = await self._session.start_run(plan)
            self._selected = None
            self.notify(f"Started {job.job_id}. It goes on without this screen.", markup=False)

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def action_stop(self) -> None:
        """Ask, then stop the shown job."""
        job = self.shown_job()
        if job is None or self._session is None or is_over(job.state):
            self.notify("The selected job is not running." if job is not None else "There is no job yet.")
            return
        children = [child for child in self._state.children(job.job_id) if not is_over(child.state)]
        body = stop_question(job, children, self._state.name)
        if await self.push_screen_wait(Confirm("Stop?", body, yes="Stop it")):
            await self._session.stop_job(job)
            self.notify(f"Stopping {job.job_id}.", markup=False)

    @work(exclusive=True, group="operation", exit_on_error=False)
    async def action_verdict(self) -> None:
        """The verdict of the newest run."""
        run = self._state.newest_run()
        if run is None or self._session is None:
            self.notify("There is no run yet.")
            return
        self.push_screen(Notice(f"Verdict of {run.job_id}", verdict_text(await self._session.read_verdict(run.job_id))))


@asynccontextmanager
async def _open_live(host_name: str):  # noqa: ANN202 - the context manager of a LiveSession
    async with operations.open_host(host_name, actor=ACTOR) as session:
        yield LiveSession(session)


def run_screen(host_name: str) -> int:
    """Open the screen on a host; returns the exit code when it is closed."""
    os.environ.setdefault("TEXTUAL_FPS", "15")
    app = RoostApp(host_name, lambda: _open_live(host_name))
    code = app.run() or 0
    if app.jobs_at_work:
        names = ", ".join(one_line(job.agent) for job in app.jobs_at_work)
        sys.stdout.write(f"Still at work on {host_name}: {names}. `roost --host {host_name}` shows them again.\n")
    return code
