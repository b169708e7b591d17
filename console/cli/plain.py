"""`roost --plain`: a host in sentences, one a line, for screen readers, terminals that cannot be drawn on, and pipes."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from console import operations
from console.cli.output import execute, narrate
from console.cli.plain_words import PlainWords, standing
from console.errors import ConsoleError
from console.state.link import LinkState
from console.state.moments import format_clock, format_moment
from console.state.sanitize import one_line, sanitize
from console.ui.host_feed import LISTEN, HostFeed
from console.ui.session import ACTOR, Connect, HostSession, LiveSession
from remote.protocol.frames import Event

_LOOK_S = 0.25
"""How often what has arrived is taken in."""

_HOW_TO_ACT = (
    "To act, use verbs in another terminal, with --host {host}: roost run PRESET, roost stop JOB, roost logs JOB, "
    "roost verdict RUN, roost approvals list. roost --help names all."
)


def run_plain(host: str) -> None:
    """Tell what happens on `host` until it is ended; raises typer.Exit with the exit code of an error, 130 for Ctrl-C."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[HostSession]:
        async with operations.open_host(host, actor=ACTOR) as session:
            yield LiveSession(session)

    execute(PlainStream(host, connect, _print_line).run(), as_json=False)


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class PlainStream:
    """A host's feed, told by `write`, a line a sentence. A line on a terminal's standard input asks how things stand; `q` ends it."""

    def __init__(self, host: str, connect: Connect, write: Callable[[str], None]) -> None:
        self.feed = HostFeed(host, connect, self)
        self._words = PlainWords()
        self._write = write
        self._day = ""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._typed: asyncio.Queue[str] = asyncio.Queue()

    async def run(self) -> None:
        """Until the link is closed for good; raises ConsoleError with the reason of that."""
        self._begin()
        try:
            self.feed.listen()
            while not self._tasks[LISTEN].done():
                await asyncio.sleep(_LOOK_S)
                self._tell_changes()
                if self._is_told_to_end():
                    return
            self._tell_changes()
            self._tasks[LISTEN].result()
        finally:
            if self._keyboard is not None:
                asyncio.get_running_loop().remove_reader(self._keyboard)
            self.end_for(self.feed)
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _tell_changes(self) -> None:
        self.feed.drain()
        self.feed.watch_logs(set())
        for sentence in self._words.changes(self.feed.state, self.clock()):
            self._say(sentence)

    def _begin(self) -> None:
        asks = "" if self._keyboard is None else " Enter says how things stand, q and Enter ends."
        self._say(
            f"Roost on host {self.feed.state.name}, in sentences. Times are UTC. Jobs go on when this ends.{asks}"
        )
        self._say(_HOW_TO_ACT.format(host=self.feed.state.name))
        if self._keyboard is not None:
            asyncio.get_running_loop().add_reader(self._keyboard, self._read, self._keyboard)

    def _read(self, keyboard: int) -> None:
        """A terminal hands over whole lines, and nothing once it was told that there are no more (Ctrl-D)."""
        typed = os.read(keyboard, 4096)
        for line in typed.splitlines() or [b"q"]:
            self._typed.put_nowait(line.strip().lower().decode(errors="replace"))

    def _is_told_to_end(self) -> bool:
        while not self._typed.empty():
            if self._typed.get_nowait() in ("q", "quit"):
                return True
            for sentence in standing(self.feed.state, self.clock()):
                self._say(sentence)
        return False

    def _say(self, sentence: str) -> None:
        now = time.time()
        day = format_moment(now).partition("T")[0]
        if day != self._day:
            self._day = day
            self._write(f"{format_clock(now)} It is {day}.")
        self._write(f"{format_clock(now)} {one_line(sanitize(sentence))}")

    def clock(self) -> float:
        """The clock that ages and link states count with."""
        return time.monotonic()

    def stamp(self, session: HostSession) -> float:  # noqa: ARG002 - a recording is played as it comes
        """When the event that `session` just told has happened."""
        return time.monotonic()

    def announce(self, feed: HostFeed, event: LinkState | Event) -> None:
        """Everything is said by comparing states."""

    def take_answer(self) -> None:
        """The next look sees it."""

    def end_for(self, feed: HostFeed) -> None:  # noqa: ARG002 - there is one feed
        """End all that runs for the feed."""
        for task in self._tasks.values():
            task.cancel()

    def run_for(self, feed: HostFeed, group: str, work: Coroutine[None, None, None]) -> None:  # noqa: ARG002 - there is one feed
        """Run `work` in place of what still runs in the same group."""
        before = self._tasks.get(group)
        if before is not None:
            before.cancel()
        self._tasks[group] = asyncio.create_task(work if group == LISTEN else _told(work))


async def _told(work: Coroutine[None, None, None]) -> None:
    """What nobody asked for by a key is only told when it fails."""
    try:
        await work
    except ConsoleError as error:
        narrate(f"roost: {error.info.message}")
