"""The background session with a host: one connection that stays, and a link process there that is ready for the next console.

`python -m console.link.resident` reads what it is for on standard input, serves the socket of `resident_place`, and ends by itself: when
nobody came for a while, when the connection is lost, and when the host or what is believed of it is not what it was. Whoever comes
speaks with a link process of his own, greets it himself, and gets the same answers as over a connection of his own.
"""

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path

import asyncssh
import msgspec

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError
from console.link import host_keys
from console.link.channel import Channel, start_channel
from console.link.engine_http import Reader, Writer, open_port
from console.link.resident_place import held, is_own_peer
from console.link.session import connect, witness_of
from console.link.target import Target, resolve
from remote.protocol.errors import ErrorInfo

IDLE_S = 300.0
"""Without anybody for so long the session ends."""

TRUST_S = 30.0
"""A host's key that was looked at longer ago is looked at again before anybody is let through."""

_ASK_TIMEOUT_S = 5.0
_READ_BYTES = 1 << 18
_FAULTS = (OSError, asyncssh.Error, ConsoleError)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is for."""

    host: HostConfig
    path: str


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a console asks of the session: a link process, or with a `port` a stream to that port of the host's loopback."""

    port: int | None = None


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; without a `refusal` the bytes that follow are the link's or the port's."""

    refusal: ErrorInfo | None = None


Relay = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Passes bytes on between a console and the host until either hangs up."""


class Resident:
    """One session."""

    def __init__(self, order: Order) -> None:
        self._host = order.host
        self._path = Path(order.path)
        self._visitors: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._idle_since = time.monotonic()
        self._trusted_at = time.monotonic()

    async def serve(self) -> None:
        """Serve until the end; raises ConsoleError where there is no connection."""
        self._world = await _world(self._host)
        self._connection = await connect(self._host)
        self._spare = asyncio.create_task(start_channel(self._connection, self._host))
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        before = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._visit, path=self._path)
        finally:
            os.umask(before)
        try:
            await self._until_over()
        finally:
            self._path.unlink(missing_ok=True)
            server.close()
            self._spare.cancel()
            self._connection.abort()

    def end(self) -> None:
        """Let `serve` come to its end."""
        self._over.set()

    async def _until_over(self) -> None:
        lost = asyncio.create_task(self._connection.wait_closed())
        over = asyncio.create_task(self._over.wait())
        while not (lost.done() or over.done()):
            left = self._idle_since + IDLE_S - time.monotonic()
            if not self._visitors and left <= 0:
                return
            await asyncio.wait({lost, over}, timeout=max(1.0, left), return_when=asyncio.FIRST_COMPLETED)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "the server runs it as one"
        self._visitors.add(task)
        try:
            with contextlib.suppress(*_FAULTS, TimeoutError, msgspec.DecodeError, ValueError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            self._visitors.discard(task)
            self._idle_since = time.monotonic()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not is_own_peer(_socket_of(writer)):
            return
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            wanted = msgspec.json.decode(await reader.readline(), type=Wanted)
        try:
            await self._require_same_world()
            relay = await self._relay(wanted)
        except _FAULTS as error:
            _say(writer, Given(refusal=_info(error)))
            await writer.drain()
            return
        _say(writer, Given())
        await relay(reader, writer)

    async def _relay(self, wanted: Wanted) -> Relay:
        if wanted.port is None:
            return partial(_relay_link, await self._take_spare())
        return partial(_relay_port, await open_port(self._connection, wanted.port))

    async def _take_spare(self) -> Channel:
        spare, self._spare = self._spare, asyncio.create_task(start_channel(self._connection, self._host))
        return await spare

    async def _require_same_world(self) -> None:
        """Raises where a connection that is made now could be refused, or lead elsewhere; the session ends then."""
        try:
            if await _world(self._host) != self._world:
                raise ConnectionError("what is believed of the host has changed")
            if time.monotonic() - self._trusted_at > TRUST_S:
                await self._look_at_the_key()
                self._trusted_at = time.monotonic()
        except _FAULTS:
            self._over.set()
            raise

    async def _look_at_the_key(self) -> None:
        """Raises ConnectionError where the host shows another key than it did."""
        key = self._connection.get_server_host_key()
        assert key is not None, "the connection was made with one"
        target = await resolve(self._host)
        passed = witness_of(self._connection).passed
        shown = await host_keys.fetch(
            target.endpoint, passed[-1] if passed else None, target.proxy_command, key.get_algorithm()
        )
        if shown.public_data != key.public_data:
            raise ConnectionError("the host shows another key than before")


async def _world(host: HostConfig) -> str:
    """A hash of where the host is, how one logs in there, and which keys are believed; hop by hop."""
    target = await resolve(host)
    hops = [await resolve(jump) for jump in target.jumps]
    digest = hashlib.sha256()
    for each in (*hops, target):
        believed = host_keys.believed(each.key_name, each.known_hosts_files)
        login = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in _login_files(each)]
        digest.update(repr((each, believed, login)).encode())
    return digest.hexdigest()


def _login_files(target: Target) -> list[str]:
    return [*target.identity_files, *target.certificate_files]


async def _relay_link(channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def bring() -> None:
        async with contextlib.aclosing(channel.blocks()) as blocks:
            async for block in blocks:
                writer.write(block)
                await writer.drain()

    async def take() -> None:
        while block := await reader.read(_READ_BYTES):
            await channel.send(block)

    try:
        await _until_first(bring(), take())
    finally:
        channel.leave()


async def _relay_port(
    stream: tuple[Reader, Writer], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    far_reader, far_writer = stream

    async def bring() -> None:
        while block := await far_reader.read(_READ_BYTES):
            writer.write(block)
            await writer.drain()

    async def take() -> None:
        while block := await reader.read(_READ_BYTES):
            far_writer.write(block)
            await far_writer.drain()

    try:
        await _until_first(bring(), take())
    finally:
        far_writer.close()


async def _until_first(*both: Coroutine[None, None, None]) -> None:
    """Until either side has hung up."""
    tasks = [asyncio.create_task(each) for each in both]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _info(error: Exception) -> ErrorInfo:
    return error.info if isinstance(error, ConsoleError) else ConnectionFailed(str(error) or type(error).__name__).info


def _socket_of(writer: asyncio.StreamWriter) -> socket.socket:
    return writer.get_extra_info("socket")


def _say(writer: asyncio.StreamWriter, given: Given) -> None:
    writer.write(msgspec.json.encode(given) + b"\n")


async def _serve(order: Order) -> None:
    resident = Resident(order)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, resident.end)
    await resident.serve()


def main() -> None:
    """Serve what standard input says, unless another process does."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    path = Path(order.path)
    with held(path) as is_ours:
        if not is_ours:
            return
        failed = path.with_suffix(".failed")
        try:
            asyncio.run(_serve(order))
        except ConsoleError:
            failed.touch(mode=0o600)
        else:
            failed.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
