"""Opens the screen on a host, and says what there is to say when it is closed or has failed."""

import os
import sys
from contextlib import asynccontextmanager

from console import operations
from console.config.hosts import load_notifications
from console.config.notifications import NotificationConfig
from console.config.screen_memory import ScreenMemory, recall, remember
from console.errors import ConsoleError
from console.state.sanitize import one_line
from console.ui.app import RoostApp
from console.ui.crash import crash_words, write_crash_report
from console.ui.session import ACTOR, Connect, LiveSession


@asynccontextmanager
async def _open_live(host_name: str):  # noqa: ANN202 - the context manager of a LiveSession
    async with operations.open_host(host_name, actor=ACTOR) as session:
        yield LiveSession(session)


def run_screen(host_name: str | None) -> int:
    """Open the screen on a host, by default on the one that it showed last; returns the exit code when it is closed."""
    recalled = recall()
    try:
        notifications = load_notifications()
    except ConsoleError as error:
        notifications = NotificationConfig()
        recalled = recalled._replace(problem=" ".join(filter(None, [recalled.problem, error.info.message])))
    name = host_name or host_of_last_time(recalled.memory)
    app = RoostApp(
        name, _opening(name), recalled=recalled, keep=remember, notifications=notifications, connect_to=_opening
    )
    code = run_guarded(app)
    for feed in app.feeds:
        if feed.jobs_at_work:
            where, names = feed.state.name, ", ".join(one_line(job.agent) for job in feed.jobs_at_work)
            sys.stdout.write(f"Still at work on {where}: {names}. `roost --host {where}` shows them again.\n")
    return code


def _opening(name: str) -> Connect:
    return lambda: _open_live(name)


def host_of_last_time(memory: ScreenMemory) -> str:
    """Only a host that is still configured: one that was played for a demonstration is not begun again by itself."""
    try:
        return memory.host if memory.host in operations.list_hosts() else operations.EMBEDDED
    except ConsoleError:
        return operations.EMBEDDED


def run_guarded(app: RoostApp, *, headless: bool = False) -> int:
    """Run an app until it is closed; its exit code, 1 after it failed, with a report of that beside."""
    os.environ.setdefault("TEXTUAL_FPS", "15")
    code = app.run(headless=headless) or 0
    if app.failure is None:
        return code
    path = write_crash_report(app.failure, app.facts())
    sys.stderr.write(crash_words(app.failure, path))
    return 1
