"""One host that the screen has open: what it sends becomes its state, and what the state lacks is asked of it."""

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import NamedTuple, Protocol

from console.errors import ConsoleError
from console.state.host import HostState
from console.state.link import Closed, Connecting, LinkState, Lost, Up
from console.state.readings import SPAN_S
from console.ui.session import Connect, HostSession
from remote.protocol.frames import Event, LogData
from remote.protocol.jobs import Job, is_over

LISTEN = "listen"
"""The group of the work that keeps a host open."""

_QUEUE = 2000
FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0


class FeedOwner(Protocol):
    """What a feed needs of the app."""

    def clock(self) -> float:
        """The clock that ages and link states count with."""
        ...

    def stamp(self, session: HostSession) -> float:
        """When the event that `session` just told has happened, on the same clock."""
        ...

    def announce(self, feed: "HostFeed", event: LinkState | Event) -> None:
        """An event is about to change the state of `feed`."""
        ...

    def take_answer(self) -> None:
        """A state has changed by itself or by an answer, not by an event."""
        ...

    def end_for(self, feed: "HostFeed") -> None:
        """End all that runs for this feed."""
        ...

    def run_for(self, feed: "HostFeed", group: str, work: Coroutine[None, None, None]) -> None:
        """Run `work` in place of what still runs for the same feed in the same group."""
        ...


class Taken(NamedTuple):
    """What `drain` took in: anything, and log lines."""

    anything: bool = False
    logs: bool = False


class HostFeed:
    """`selected` is the job that a person went to."""

    def __init__(self, name: str, connect: Connect, owner: FeedOwner) -> None:
        self._connect = connect
        self._owner = owner
        self._begin(name)

    def _begin(self, name: str) -> None:
        self.state = HostState(name)
        self.session: HostSession | None = None
        self.selected: str | None = None
        self._incoming: asyncio.Queue[tuple[LinkState | Event, float]] = asyncio.Queue(_QUEUE)
        self._history_due = False
        self._has_history = False
        self._watched: tuple[dict[str, int], dict[str, int]] | None = None
        self.is_resting = True

    def listen(self) -> None:
        """Open the host and take in what it sends until the link is closed."""
        self.is_resting = False
        self.session = None
        self._owner.run_for(self, LISTEN, self._listen())

    def rest(self) -> None:
        """Close the link; what is known stays, and `listen` goes on from there."""
        self._owner.end_for(self)
        self.is_resting = True
        self.session = None
        self._watched = None
        self._incoming = asyncio.Queue(_QUEUE)
        self.state.apply(Closed(error=None), self._owner.clock())

    def begin_anew(self) -> None:
        """Forget everything but the selection and listen from the beginning."""
        selected = self.selected
        self._begin(self.state.name)
        self.selected = selected
        self.listen()

    async def _listen(self) -> None:
        """A first connection that fails is made again, as one that is lost later; raises what no new attempt can change."""
        began = self._owner.clock()
        self._be(Connecting(attempt=1, since=began))
        for attempt in count(1):
            try:
                await self._take_in_all()
            except ConsoleError as error:
                if self.session is not None or not error.info.retryable:
                    raise
                wait = min(_LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempt - 1, 10))
                reason = ". ".join(filter(None, [error.info.message, error.info.hint]))
                self._be(Lost(since=began, reason=reason, retry_at=self._owner.clock() + wait))
                await asyncio.sleep(wait)
                self._be(Connecting(attempt=attempt + 1, since=began))
            else:
                return

    def _be(self, link: LinkState) -> None:
        self.state.apply(link, self._owner.clock())
        self._owner.take_answer()

    async def _take_in_all(self) -> None:
        async with self._connect() as session:
            self.session = session
            async for event in session.events():
                await self._incoming.put((event, self._owner.stamp(session)))

    def drain(self) -> Taken:
        """Take in what has arrived."""
        took = logs = False
        while not self._incoming.empty():
            event, happened_at = self._incoming.get_nowait()
            was_up = isinstance(self.state.link, Up)
            self._owner.announce(self, event)
            self.state.apply(event, happened_at)
            took = True
            logs |= isinstance(event, LogData)
            if isinstance(event, Up) and not was_up:
                self._history_due = True
                self.refresh_jobs()
        if took:
            self._sync_history()
        return Taken(took, logs)

    def refresh_jobs(self) -> None:
        """Ask for all jobs; after that the link streams what changes."""
        self._owner.run_for(self, "jobs", self._ask_jobs())

    async def _ask_jobs(self) -> None:
        if self.session is not None:
            self.state.set_jobs(await self.session.list_jobs())
            self._watched = None
            self._owner.take_answer()

    def _sync_history(self) -> None:
        """Once a link is up and has told the time there, ask for what it does not know of the last minutes."""
        now = self._owner.clock()
        host_now = self.state.host_now(now)
        if self._history_due and host_now is not None and self.state.silence_s(now) is not None:
            self._history_due = False
            known = self.state.readings.newest_at
            since = host_now - SPAN_S
            newest = max(since, known) if self._has_history and known is not None else since
            self._owner.run_for(self, "history", self._back_fill(newest))

    async def _back_fill(self, since: float) -> None:
        """Fill the histories with what the host recorded."""
        if self.session is not None:
            async for page in self.session.read_history(since):
                self.state.apply(page, self._owner.clock())
            self._has_history = True
            self._owner.take_answer()

    def watch_logs(self, names: set[str]) -> None:
        """Have these logs streamed, and the progress that the state wants; their cursors are the link's business."""
        if not self.state.jobs_known:
            return
        logs = {name: self.state.log_of(name).cursor for name in sorted(names)}
        progress = self.state.wanted_progress()
        if self._watched is None or (set(logs), set(progress)) != (set(self._watched[0]), set(self._watched[1])):
            self._watched = (logs, progress)
            self._owner.run_for(self, "watch", self._watch(logs, progress))

    async def _watch(self, logs: dict[str, int], progress: dict[str, int]) -> None:
        if self.session is not None:
            await self.session.watch(logs=logs, progress=progress)

    def ask_topology(self) -> None:
        """Ask how the devices are connected; a host that cannot tell has nothing to show."""
        self._owner.run_for(self, "topology", self._ask_topology())

    async def _ask_topology(self) -> None:
        if self.session is not None:
            self.state.apply(await self.session.read_topology(), self._owner.clock())
            self._owner.take_answer()

    @property
    def jobs_at_work(self) -> list[Job]:
        """The jobs that go on when the screen is closed."""
        return [job for job in self.state.shown_jobs() if not is_over(job.state)]

    def shown_job(self) -> Job | None:
        """The selected job, else the newest live one that writes a log, else the newest."""
        if self.selected in self.state.jobs:
            return self.state.jobs[self.selected]
        jobs, live = self.state.shown_jobs(), self.jobs_at_work
        telling = [job for job in live if job.log_size and job.agent != "run"]
        return (telling or live or jobs or [None])[0]
