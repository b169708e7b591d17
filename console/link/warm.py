"""The console's side of the background session with a host: to use one that is there, and to begin one for the next verb."""

import asyncio
import contextlib
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError, HostError
from console.link.engine_http import Reader, Writer
from console.link.resident import Given, Order, Wanted
from console.link.resident_place import held, is_own, is_own_peer, socket_path
from remote.protocol.codec import MAX_LINE_BYTES

_PATIENCE_S = 10.0
"""A session that does not answer in this time is done without."""

_AGAIN_AFTER_S = 300.0
"""Where a session could not be begun, as with a key that wants a passphrase, it is tried again after so long."""


class WarmChannel:
    """A link process of the host, reached through the background session."""

    def __init__(
        self, host: HostConfig, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._host = host
        self._path = path
        self._reader = reader
        self._writer = writer
        self._dropped = ""

    async def send(self, data: bytes) -> None:
        """Write a line; raises ConnectionError when the session is gone."""
        self._writer.write(data)
        await self._writer.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines until the link ends; raises ConnectionError."""
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                yield line[:-1]
        except ValueError as error:
            raise ConnectionError(f"the host sent a line of more than {MAX_LINE_BYTES} bytes") from error
        except OSError as error:
            raise ConnectionError(self._dropped or str(error)) from error

    async def ended(self) -> ConnectionFailed:
        """Why the link is over."""
        return ConnectionFailed(self._dropped or f"the background session with {self._host.name} ended")

    async def open_port(self, port: int) -> tuple[Reader, Writer]:
        """A stream to a loopback port of the host over the same connection; raises ConnectionFailed."""
        return await _ask(self._path, Wanted(port=port))

    async def close(self) -> None:
        """Hang up; the session ends the link process there and stays."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self, reason: str) -> None:
        """Drop it; whoever reads it sees its end, and why."""
        self._dropped = reason
        self._writer.transport.abort()


async def open_warm(host: HostConfig) -> WarmChannel | None:
    """A link through the session with `host`; None where there is none of this user and release that works."""
    path = socket_path(host)
    if path is None or not is_own(path, stat.S_ISSOCK):
        return None
    try:
        return WarmChannel(host, path, *await _ask(path, Wanted()))
    except ConsoleError:
        return None


def begin_session(host: HostConfig) -> None:
    """Start the session with `host` in the background unless there is one, or it failed a little while ago."""
    path = socket_path(host)
    if path is None or _failed_lately(path):
        return
    with contextlib.suppress(OSError):
        with held(path) as is_free:
            if not is_free:
                return
        process = subprocess.Popen(
            [sys.executable, "-m", "console.link.resident"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        assert process.stdin is not None, "it was asked for"
        with process.stdin as ours:
            ours.write(msgspec.json.encode(Order(host=host, path=str(path))))


def _failed_lately(path: Path) -> bool:
    try:
        return time.time() - path.with_suffix(".failed").stat().st_mtime < _AGAIN_AFTER_S
    except OSError:
        return False


async def _ask(path: Path, wanted: Wanted) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    writer = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE_BYTES)
            if not is_own_peer(writer.get_extra_info("socket")):
                raise ConnectionError("the session is somebody else's")
            writer.write(msgspec.json.encode(wanted) + b"\n")
            given = msgspec.json.decode(await reader.readline(), type=Given)
        if given.refusal is not None:
            raise HostError(given.refusal)
    except (OSError, TimeoutError, msgspec.DecodeError, ValueError) as error:
        _hang_up(writer)
        raise ConnectionFailed(str(error) or "the background session does not answer") from error
    except BaseException:  # a refusal, and a cancelled task as well: the socket would stay open
        _hang_up(writer)
        raise
    return reader, writer


def _hang_up(writer: asyncio.StreamWriter | None) -> None:
    if writer is not None:
        writer.close()
