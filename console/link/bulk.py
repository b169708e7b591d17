"""Artifacts to and from a host over an SSH connection of their own, so that the link stays quick meanwhile.

The end on this machine is a process too (`python -m remote.bulk`), the same code as on the host; here the bytes only pass.
"""

import asyncio
import importlib.util
import os
import random
import sys
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError, HostError
from console.link.channel import Channel, open_channel
from console.link.ingress import receive_document
from remote.protocol.bulk import BulkAdvanced, BulkDone, BulkStatus
from remote.protocol.errors import ErrorCode, ErrorInfo

Direction = Literal["pull", "push"]

OnAdvance = Callable[[BulkAdvanced], None]
OnRetry = Callable[[str, float], None]
"""Called with why the connection broke and the seconds until the next attempt."""

_ENDS = {"pull": ("receive", "send"), "push": ("send", "receive")}
_READ_BYTES = 1 << 18
_END_TIMEOUT_S = 10.0


class Patience(NamedTuple):
    """How often a broken transfer goes on by itself without having moved anything, and how long it waits in between."""

    attempts: int = 8
    first_wait_s: float = 0.5
    most_wait_s: float = 15.0

    def wait_s(self, failures: int) -> float:
        """Seconds before the next attempt, up to twice as many each time, by chance."""
        return random.uniform(0, min(self.most_wait_s, self.first_wait_s * 2 ** min(failures, 10)))  # noqa: S311 - jitter


class Transfer(NamedTuple):
    """What is to be moved: `here` on this machine, `there` on the host, absolute or below its root; `actor` for the host's journal."""

    direction: Direction
    here: Path
    there: str
    actor: str = "unknown"


async def transfer(
    host: HostConfig,
    what: Transfer,
    *,
    on_advance: OnAdvance,
    on_retry: OnRetry,
    patience: Patience = Patience(),  # noqa: B008
) -> BulkDone:
    """Move an artifact; a broken connection is made again and the transfer goes on at the byte where it stopped.

    Raises ConnectionFailed when that keeps failing, HostError with either end's own error.
    """
    failures, was_cut = 0, False
    while True:
        attempt = _Attempt(what, on_advance)
        try:
            return await attempt.run(await open_channel(host, _ENDS[what.direction][1], what.there, what.actor))
        except ConsoleError as error:
            failures = 1 if attempt.has_moved else failures + 1
            is_cut = isinstance(error, ConnectionFailed) and (attempt.has_begun or was_cut)
            # After a cut the host may need a moment to see it and to let go of what it was writing.
            is_held = was_cut and error.info.code == ErrorCode.CONFLICT
            if not error.info.retryable or not (is_cut or is_held) or failures >= patience.attempts:
                raise
            was_cut = True
            wait = patience.wait_s(failures)
            on_retry(error.info.message, wait)
            await asyncio.sleep(wait)


class _Attempt:
    """One connection's worth of a transfer."""

    def __init__(self, what: Transfer, on_advance: OnAdvance) -> None:
        self._what = what
        self._on_advance = on_advance
        self._done: BulkDone | ErrorInfo | None = None
        self._first_done: int | None = None
        self._said: deque[str] = deque(maxlen=3)
        self.has_begun = False
        self.has_moved = False

    async def run(self, channel: Channel) -> BulkDone:
        self.has_begun = True
        end = await _start_end(_ENDS[self._what.direction][0], self._what.here)
        assert end.stdin is not None, "its standard streams are pipes"
        assert end.stdout is not None, "its standard streams are pipes"
        assert end.stderr is not None, "its standard streams are pipes"
        arriving = asyncio.create_task(_to_end(channel, end.stdin))
        leaving = asyncio.create_task(_from_end(end.stdout, channel))
        try:
            await self._listen(end.stderr)
            await end.wait()
        finally:
            if end.returncode is None:
                end.kill()
                await end.wait()
            for task in (arriving, leaving):
                task.cancel()
            await asyncio.gather(arriving, leaving, return_exceptions=True)
            is_cut = isinstance(self._done, ErrorInfo) and self._done.code == ErrorCode.CONNECTION
            ended = await channel.ended() if is_cut else None
            await channel.close()
        match self._done:
            case BulkDone() as done:
                return done
            case ErrorInfo(code=ErrorCode.CONNECTION) if ended is not None:
                raise ended
            case ErrorInfo() as error:
                raise HostError(error)
            case None:
                words = " / ".join(self._said) or f"exit status {end.returncode}"
                raise ConsoleError(
                    ErrorInfo(code=ErrorCode.FAILED, message=f"the transfer's end on this machine broke: {words}")
                )

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        async for line in stderr:
            try:
                status = msgspec.convert(receive_document(line), BulkStatus)
            except msgspec.ValidationError:
                self._said.append(line.decode(errors="replace").strip())
                continue
            match status:
                case BulkAdvanced(bytes_done=done):
                    self._first_done = done if self._first_done is None else self._first_done
                    self.has_moved = done > self._first_done
                    self._on_advance(status)
                case _:
                    self._done = status


async def _start_end(verb: str, here: Path) -> asyncio.subprocess.Process:
    specification = importlib.util.find_spec("remote")
    assert specification is not None, "remote ships with console"
    package = Path(next(iter(specification.submodule_search_locations or [])))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "remote.bulk",
        verb,
        str(Path.cwd()),
        str(here),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        start_new_session=True,  # an interrupt is for the console, whose end this one sees
    )


async def _to_end(channel: Channel, stdin: asyncio.StreamWriter) -> None:
    try:
        async with aclosing(channel.blocks()) as blocks:
            async for block in blocks:
                stdin.write(block)
                await stdin.drain()
    except ConnectionError:
        return
    finally:
        stdin.close()


async def _from_end(stdout: asyncio.StreamReader, channel: Channel) -> None:
    """What the host does not take any more is dropped, or the end would wait for ever to be read."""
    is_taken = True
    while block := await stdout.read(_READ_BYTES):
        if is_taken:
            try:
                await channel.send(block)
            except ConnectionError:
                is_taken = False
    channel.send_end()
