"""A console behind a bad network, and what it has received; jobs of small programs on the host."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import msgspec

from console.config.hosts import HostConfig
from console.embedded import lifecycle
from console.embedded.locations import EmbeddedHome
from console.link.client import HostLink
from console.link.host_keys import Endpoint, remember
from console.link.watchdog import LinkTimings
from console.state.link import LinkState, Lost, Up
from remote.jobs import process
from remote.protocol.frames import Event, JobChanged, LogData, LogTruncated, Telemetry
from remote.protocol.jobs import Job
from remote.protocol.requests import Watch
from tests.faults.proxy import Network, network_to
from tests.jobs.workshop import Workshop, end_everything_below

QUICK = LinkTimings(
    ping_interval_s=0.5, tick_s=0.1, silence_s=3.0, probe_s=1.0, steady_s=0.2, backoff_first_s=0.1, backoff_most_s=0.5
)
PATIENCE_S = 40.0


class Received:
    """What a console got, in order."""

    def __init__(self, link: HostLink) -> None:
        self.link = link
        self.states: list[LinkState] = []
        self.jobs: list[Job] = []
        self.log = b""
        self.truncations: list[int] = []
        self.readings = 0
        self._changed = asyncio.Condition()
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._listening = asyncio.create_task(self.listen())

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def listen(self) -> None:
        async for event in self.link.events():
            self._take(event)
            async with self._changed:
                self._changed.notify_all()

    def _take(self, event: LinkState | Event) -> None:
        match event:
            case LogData(offset=offset, data=data):
                expected = self.truncations[-1] + len(self.log) if self.truncations else len(self.log)
                assert offset == expected, f"a gap or a repeat: bytes from {offset} on, {expected} were due"
                self.log += data
            case LogTruncated(start=start):
                self.truncations.append(start)
                self.log = b""
            case JobChanged(job=job):
                self.jobs.append(job)
            case Telemetry():
                self.readings += 1
            case Up() if self.states and isinstance(self.states[-1], Up):
                pass
            case state if isinstance(state, LinkState):
                self.states.append(state)
            case _:
                pass

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(condition)

    async def until_log(self, whole: bytes) -> None:
        await self.until(lambda: len(self.log) >= len(whole))
        assert self.log == whole

    def is_up(self) -> bool:
        return bool(self.states) and isinstance(self.states[-1], Up)

    @property
    def losses(self) -> list[Lost]:
        return [state for state in self.states if isinstance(state, Lost)]


class Ground:
    """A host, the network before it, and a workshop on it."""

    def __init__(self, host: HostConfig, network: Network) -> None:
        self.host = host
        self.network = network
        self.workshop = Workshop(Path(host.root))

    @asynccontextmanager
    async def console(
        self, log_of: str | None = None, *, listening: bool = True, **more: object
    ) -> AsyncIterator[Received]:
        behind = msgspec.structs.replace(self.host, port=self.network.port)
        async with HostLink(behind, actor="ann", **{"timings": QUICK, **more}) as link:
            received = Received(link)
            if listening:
                received.start()
            await link.watch(Watch(telemetry=True, jobs=True, logs={} if log_of is None else {log_of: 0}))
            try:
                yield received
            finally:
                await received.stop()

    def link_processes(self) -> list[int]:
        """The host's ends of consoles' links that live."""
        found = []
        for one in process.every_process():
            try:
                command = Path(f"/proc/{one.pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"link" in command and os.fsencode(self.host.root) in command and one.state != "Z":
                found.append(one.pid)
        return found


@asynccontextmanager
async def ground_before(host: HostConfig) -> AsyncIterator[Ground]:
    """The embedded host behind a bad network; its key is known for that port too."""
    home = EmbeddedHome(directory=Path(host.root).parent, engine_python=Path(sys.executable))
    address = lifecycle._read_address(home)
    assert address is not None
    async with network_to(host.port or 0) as network:
        remember(Endpoint("127.0.0.1", network.port), asyncssh.import_public_key(address.host_key))
        yield Ground(host, network)
    end_everything_below(Path(host.root))
