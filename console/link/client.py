"""The client of the protocol: calls that survive a lost link, and one stream of events that never repeats or skips a byte."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Self

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError, HostError
from console.link.calls import Calls
from console.link.cursors import Cursors, Gap
from console.link.engine_http import Reader, Writer
from console.link.greeting import greet, open_and_greet
from console.link.inbox import Inbox
from console.link.ingress import receive_frame
from console.link.warm import open_warm
from console.link.watchdog import Alive, Dead, LinkTimings, Suspect, Watchdog
from console.link.wire import Wire
from console.state.link import Closed, Connecting, LinkState, Lost, Up
from console.state.sanitize import sanitize
from remote.protocol.codec import ProtocolError, encode_line
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Answer, Call, Event, Failure, HostFrame
from remote.protocol.requests import Ping, Reply, Request, Watch

Locate = Callable[[], Awaitable[HostConfig]]
"""Finds the host again before a reconnect, for hosts that may come back at another port."""


class HostLink:
    """A host, connected for as long as the context lasts; a first connection that fails raises, a later loss is a state.

    One that `may_be_warm` goes through the host's background session where there is one (`is_warm`).
    """

    def __init__(
        self,
        host: HostConfig,
        *,
        actor: str,
        locate: Locate | None = None,
        may_be_warm: bool = False,
        timings: LinkTimings = LinkTimings(),  # noqa: B008 - frozen
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.host = host
        self._locate = locate
        self._may_be_warm = may_be_warm
        self.is_warm = False
        self.actor = actor
        self._timings = timings
        self._wall_clock = wall_clock
        self._watchdog = Watchdog(timings, monotonic=time.monotonic(), wall=wall_clock())
        self.state: LinkState = Connecting(attempt=1, since=time.monotonic())
        self._inbox = Inbox()
        self._calls = Calls()
        self._cursors: Cursors | None = None
        self._channel: Wire | None = None
        self._open_channel: Wire | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        channel, up = await self._open()
        self._channel = self._open_channel = channel
        await self._enter(up)
        self._task = asyncio.create_task(self._run(channel))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._open_channel is not None:
            await self._open_channel.close()
            self._open_channel = None
        await self._enter(Closed(error=None))

    async def call(self, request: Request, *, timeout_s: float = 30.0) -> Reply:
        """The host's reply; over a lost link the call waits and is sent again. Raises HostError or ConnectionFailed."""
        if isinstance(self.state, Closed):
            raise self._closed_error(self.state)
        try:
            with self._calls.open(request) as waiting:
                async with asyncio.timeout(timeout_s):
                    await self._inbox.look_again()
                    await self._send(Call(call_id=waiting.number, request=request))
                    return await waiting.reply
        except TimeoutError:
            raise self._no_answer(request, timeout_s) from None

    async def watch(self, watch: Watch) -> None:
        """Replace what the host streams; remembered over lost links."""
        self._cursors = Cursors(watch)
        await self.call(watch)

    async def open_port(self, port: int) -> tuple[Reader, Writer]:
        """A stream to a loopback port of the host, beside the link on its connection; raises ConnectionFailed."""
        if self._open_channel is None:
            raise ConnectionFailed(f"the link to {self.host.name} is down", hint="try again")
        return await self._open_channel.open_port(port)

    async def events(self) -> AsyncGenerator[LinkState | Event, None]:
        """Link states and events in order; ends after `Closed`. For one consumer at a time."""
        if isinstance(self.state, Closed):
            yield self.state
            return
        while True:
            event = await self._inbox.get()
            yield event
            if isinstance(event, Closed):
                return

    def _no_answer(self, request: Request, timeout_s: float) -> ConsoleError:
        what = f"{self.host.name} did not answer {type(request).__name__} within {timeout_s:g} s"
        if isinstance(self.state, Lost | Connecting):
            return ConnectionFailed(f"{what}: the link is down", hint="jobs on the host go on; try again")
        info = ErrorInfo(
            code=ErrorCode.TIMEOUT, message=what, hint="the host may be overloaded; try again", retryable=True
        )
        return ConsoleError(info)

    def _closed_error(self, state: Closed) -> ConsoleError:
        if state.error is not None:
            return HostError(state.error)
        return ConnectionFailed(f"the link to {self.host.name} is closed", retryable=False)

    async def _send(self, call: Call) -> None:
        if self._channel is None:
            return
        try:
            await self._channel.send(encode_line(call))
        except ConnectionError:
            return

    async def _open(self) -> tuple[Wire, Up]:
        if self._may_be_warm:
            self._may_be_warm = False  # what is lost is opened anew, not through the same session
            warm = await open_warm(self.host)
            if warm is not None:
                with contextlib.suppress(ConsoleError):
                    opened = await greet(warm, self.host.name, self.actor, patience_s=self._timings.hello_s)
                    self.is_warm = True
                    return opened
        return await open_and_greet(self.host, self.actor, patience_s=self._timings.hello_s)

    async def _enter(self, state: LinkState) -> None:
        self.state = state
        await self._inbox.put(state)

    async def _run(self, channel: Wire) -> None:
        attempt = 0
        while True:
            up_at = time.monotonic()
            reason = await self._use(channel)
            lost_at = time.monotonic()
            if lost_at - up_at >= self._timings.steady_s:
                attempt = 0
            while True:
                wait = self._backoff(attempt)
                attempt += 1
                await self._enter(Lost(since=lost_at, reason=sanitize(reason), retry_at=time.monotonic() + wait))
                await asyncio.sleep(wait)
                await self._enter(Connecting(attempt=attempt, since=lost_at))
                try:
                    if self._locate is not None:
                        self.host = await self._locate()
                    channel, up = await self._open()
                except ConsoleError as error:
                    if not error.info.retryable:
                        await self._close(error.info)
                        return
                    reason = error.info.message
                    continue
                break
            await self._resume(channel)
            await self._enter(up)

    def _backoff(self, failures: int) -> float:
        """Nothing before the first attempt; then up to twice as long each time, by chance, so that consoles do not come as one."""
        if failures == 0:
            return 0.0
        longest = self._timings.backoff_first_s * 2 ** min(failures, 10)
        return random.uniform(0, min(self._timings.backoff_most_s, longest))  # noqa: S311 - jitter

    async def _close(self, error: ErrorInfo) -> None:
        await self._enter(Closed(error=error))
        self._calls.fail_all(error)

    async def _resume(self, channel: Wire) -> None:
        self._channel = self._open_channel = channel
        if self._cursors is not None:
            await self._send(Call(call_id=0, request=self._cursors.watch()))
        for waiting in self._calls.unanswered():
            again = waiting.request
            if isinstance(again, Watch) and self._cursors is not None:
                again = self._cursors.watch()
            await self._send(Call(call_id=waiting.number, request=again))

    async def _use(self, channel: Wire) -> str:
        """Read the link until it breaks; the reason in words."""
        self._channel = channel
        self._watchdog = Watchdog(self._timings, monotonic=time.monotonic(), wall=self._wall_clock())
        watching = [asyncio.create_task(self._guard(channel)), asyncio.create_task(self._measure_latency())]
        try:
            async for line in channel.lines():
                self._watchdog.heard(time.monotonic())
                await self._take(receive_frame(line))
            reason = (await channel.ended()).info.message
        except (ConnectionError, ProtocolError) as error:
            reason = str(error)
        finally:
            for task in watching:
                task.cancel()
            self._channel = None
        await channel.close()
        self._open_channel = None
        return reason

    async def _guard(self, channel: Wire) -> None:
        while True:
            await asyncio.sleep(self._timings.tick_s)
            now = time.monotonic()
            if self._inbox.is_full():
                self._watchdog.heard(now)
            match self._watchdog.check(now, self._wall_clock()):
                case Dead(silent_s=silent_s):
                    channel.abort(f"no word from the host for {silent_s:.0f} s")
                    return
                case Suspect():
                    await self._probe(channel)
                case Alive():
                    pass

    async def _probe(self, channel: Wire) -> None:
        try:
            await self.call(Ping(), timeout_s=self._timings.probe_s)
        except ConsoleError:
            channel.abort("no answer from the host after this computer slept")

    async def _measure_latency(self) -> None:
        # Apart from the guard: a ping that waits for its answer must not stop the clock that the guard looks at.
        while True:
            await asyncio.sleep(self._timings.ping_interval_s)
            up = self.state
            if not isinstance(up, Up) or self._inbox.is_full():
                continue
            asked = time.monotonic()
            try:
                await self.call(Ping(), timeout_s=self._timings.silence_s)
            except ConsoleError:
                continue
            if self.state is up:
                await self._enter(Up(since=up.since, latency_s=time.monotonic() - asked, welcome=up.welcome))

    async def _take(self, frame: HostFrame) -> None:
        match frame:
            case Failure(call_id=0, error=error):
                # The host gave up a stream: a fresh link asks for all of them again.
                raise ConnectionError(error.message)
            case Answer() | Failure():
                self._calls.take(frame)
            case _:
                await self._deliver(frame)

    async def _deliver(self, event: Event) -> None:
        try:
            fresh = self._cursors.accept(event) if self._cursors is not None else event
        except Gap:
            assert self._cursors is not None, "only cursors find gaps"
            await self._send(Call(call_id=0, request=self._cursors.watch()))
            return
        if fresh is None:
            return
        await self._inbox.put(fresh)
        if not self._calls.is_anyone_waiting():
            await self._inbox.wait_for_room(unless=self._calls.is_anyone_waiting)
            self._watchdog.heard(time.monotonic())
