"""Gets a person's attention when a host raises a notification: the terminal's bell, the desktop, a command of the person's own."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
from textual.notifications import SeverityLevel

from console.config.notifications import NotificationConfig
from console.state.sanitize import one_line
from console.ui.clipboard import through_tmux
from remote.protocol.notifications import Notification, NotificationKind

BELL = "\a"
SEVERITIES: dict[NotificationKind, SeverityLevel] = {
    "verdict": "information",
    "finished": "information",
    "test": "information",
    "failed": "error",
    "disk_short": "warning",
    "gpu_fault": "error",
}
"""How a notification looks on the screen."""

_LONGEST_TEXT = 200
_COMMAND_S = 10.0
_RETRIES_S = (5.0, 60.0)


def desktop_sequence(text: str, *, in_tmux: bool) -> str:
    """What makes a terminal notify the desktop (OSC 9); tmux passes it on with `allow-passthrough`."""
    sequence = f"\x1b]9;{one_line(text)[:_LONGEST_TEXT]}\x07"
    return through_tmux(sequence) if in_tmux else sequence


class Attention:
    """`write` puts characters on the terminal as they are, `tell` says what went wrong."""

    def __init__(self, config: NotificationConfig, write: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self._config = config
        self._write = write
        self._tell = tell
        self._running: set[asyncio.Task[None]] = set()

    def call(self, notifications: Iterable[Notification]) -> None:
        """Have them noticed; returns at once, a command that fails is run twice more."""
        for notification in notifications:
            if self._config.bell:
                self._write(BELL)
            if self._config.desktop:
                words = f"Roost, {notification.host_name}: {notification.text}"
                self._write(desktop_sequence(words, in_tmux="TMUX" in os.environ))
            if self._config.command:
                task = asyncio.get_running_loop().create_task(self._run_command(notification))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    @property
    def is_busy(self) -> bool:
        """Whether a command is at work or is tried again."""
        return bool(self._running)

    async def _run_command(self, notification: Notification) -> None:
        trouble = ""
        for wait in (0.0, *_RETRIES_S):
            await asyncio.sleep(wait)
            trouble = await _attempt(self._config.command, notification)
            if not trouble:
                return
        self._tell(f"the command of [notifications] in roost.toml failed: {trouble}")


async def _attempt(command: list[str], notification: Notification) -> str:
    """What went wrong; empty when nothing did."""
    environment = os.environ | {"ROOST_NOTIFICATION_TEXT": notification.text}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        return str(error)
    try:
        async with asyncio.timeout(_COMMAND_S):
            _, said = await process.communicate(msgspec.json.encode(notification))
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        return f"it was still at work after {_COMMAND_S:g} s"
    if process.returncode == 0:
        return ""
    words = one_line(said.decode(errors="replace"))[-_LONGEST_TEXT:]
    return f"exit status {process.returncode}{': ' + words if words else ''}"
