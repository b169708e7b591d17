"""One SSH connection with the host's link process at its other end: bytes in, lines out, every end explained."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import asyncssh

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed
from console.link import slurm
from console.link.deploy import BOOT_MARKER, bootstrap_command, release, upload
from console.link.engine_http import Reader, Writer, open_port
from console.link.ingress import receive_document
from console.link.session import connect, explain_end, witness_of
from console.state.sanitize import one_line
from remote.protocol.codec import MAX_LINE_BYTES, READY_MARKER

BOOT_TIMEOUT_S = 120.0
"""From the command to the link's first word: an upload over a slow line included."""

_READ_BYTES = 1 << 18
_WINDOW_BYTES = 32 << 20
_SAID_LINES, _SAID_BYTES = 20, 300
_CLOSE_TIMEOUT_S = 3.0


class Channel:
    """An open link to a host; made by `open_channel`."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: "asyncssh.SSHClientProcess[bytes]",
        slurm_job: int | None = None,
    ) -> None:
        self._connection = connection
        self._slurm_job = slurm_job
        self._process = process
        self._buffer = b""
        self._lines: deque[bytes] = deque()
        self._dropped = ""
        self._said: deque[str] = deque(maxlen=_SAID_LINES)
        self._is_ours = False
        self._stderr_task = asyncio.create_task(self._drain_stderr())

    async def send(self, data: bytes) -> None:
        """Write a line; raises ConnectionError when the link is gone."""
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, asyncssh.Error) as error:
            raise ConnectionError(str(error)) from error

    async def lines(self) -> AsyncIterator[bytes]:
        """Lines until the link ends; raises ConnectionError for a broken link or a line that is too long."""
        while True:
            *whole, self._buffer = self._buffer.split(b"\n")
            self._lines.extend(whole)
            while self._lines:
                yield self._lines.popleft()
            if len(self._buffer) > MAX_LINE_BYTES:
                raise ConnectionError(f"the host sent a line of more than {MAX_LINE_BYTES} bytes")
            try:
                block = await self._process.stdout.read(_READ_BYTES)
            except (OSError, asyncssh.Error) as error:
                raise ConnectionError(self._dropped or explain_end(error)) from error
            if not block:
                return
            self._buffer += block

    async def blocks(self) -> AsyncGenerator[bytes, None]:
        """The bytes after the last line that was read, as they come, until the end; raises ConnectionError."""
        if rest := b"\n".join([*self._lines, self._buffer]):
            yield rest
        while True:
            try:
                block = await self._process.stdout.read(_READ_BYTES)
            except (OSError, asyncssh.Error) as error:
                raise ConnectionError(self._dropped or explain_end(error)) from error
            if not block:
                return
            yield block

    def send_end(self) -> None:
        """Say that nothing more will be sent."""
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.stdin.write_eof()

    async def boot(self) -> None:
        """See the bootstrap through to the link's ready marker; raises ConnectionFailed with what the host said."""
        async for line in self.lines():
            if line.strip() == READY_MARKER:
                return
            if not line.startswith(BOOT_MARKER):
                self._note(line)
            else:
                self._is_ours = True
                word, _, details = line[len(BOOT_MARKER) :].strip().partition(b" ")
                await self._answer_bootstrap(word.decode(errors="replace"), receive_document(details))
        raise await self.ended()

    async def _answer_bootstrap(self, word: str, details: dict[str, Any]) -> None:
        match word:
            case "need":
                await self.send(upload(release()))
            case "no-python":
                looked = "; ".join(
                    f"{python} lacks {', '.join(missing)}" for python, missing in details.get("looked", {}).items()
                )
                raise ConnectionFailed(
                    f"no Python on the host can run Roost: {looked}",
                    hint="`roost hosts check` shows every Python there; `roost hosts prepare` makes an environment "
                    "for Roost, `roost embedded prepare` that of the embedded host",
                    retryable=False,
                )
            case "error":
                raise ConnectionFailed(
                    f"the host could not be set up: {details.get('message', 'it did not say why')}",
                    hint="is `root` of the host in roost.toml on a writable disk with room?",
                )
            case _:
                pass

    async def ended(self) -> ConnectionFailed:
        """Why the link is over, with the last words that were no frames: of a shell, a banner, or its standard error."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._process.wait_closed()
                await self._stderr_task
        except (TimeoutError, OSError, asyncssh.Error):
            pass
        said = " / ".join(list(self._said)[-3:])
        status = self._process.exit_status
        if status is None:
            why = self._dropped or explain_end(witness_of(self._connection).lost)
            return ConnectionFailed(f"{why}{': ' + said if said else ''}")
        if (ended_by := self._process.exit_signal) is not None:
            return ConnectionFailed(f"the host's end of the link was killed (SIG{ended_by[0]}); jobs there go on")
        return ConnectionFailed(
            f"the host ended the link with exit status {status}{': ' + said if said else ''}",
            hint=None if self._is_ours else "does a command run there at all? try `ssh HOST python3 --version`",
            retryable=self._is_ours,
        )

    async def open_port(self, port: int) -> tuple[Reader, Writer]:
        """A stream to a loopback port of the host over the same connection; raises ConnectionFailed."""
        if self._slurm_job is None:
            return await open_port(self._connection, port)
        return await slurm.open_port(self._connection, self._slurm_job, port)

    async def close(self) -> None:
        """Hang up; the host's link process ends by itself when its standard input does."""
        self._process.stdin.write_eof()
        self._connection.close()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._connection.wait_closed()
        except (TimeoutError, OSError, asyncssh.Error):
            self._connection.abort()
        self._stderr_task.cancel()

    def leave(self) -> None:
        """End this link alone: the connection stays for others."""
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.stdin.write_eof()
        self._process.close()
        self._stderr_task.cancel()

    def abort(self, reason: str) -> None:
        """Drop a connection that has gone silent; whoever reads it sees its end, and why."""
        self._dropped = reason
        self._connection.abort()

    def _note(self, line: bytes) -> None:
        if text := one_line(line[:_SAID_BYTES].decode(errors="replace")):
            self._said.append(text)

    async def _drain_stderr(self) -> None:
        try:
            while block := await self._process.stderr.read(_READ_BYTES):
                for line in block.splitlines():
                    self._note(line)
        except (OSError, asyncssh.Error):
            return


async def bring_release(connection: asyncssh.SSHClientConnection, host: HostConfig) -> None:
    """Bring this release to a login host, where nothing but that is to be done; raises ConnectionFailed."""
    async with asyncio.timeout(BOOT_TIMEOUT_S):
        process = await connection.create_process(bootstrap_command(host, release(), "ready"), encoding=None)
        channel = Channel(connection, process)
        await channel.boot()
        await channel.ended()


async def open_channel(
    host: HostConfig, verb: str = "link", path: str | None = None, actor: str = "unknown"
) -> Channel:
    """Connect, bring the release, start `verb` of the host side (`link`, `send`, `receive`); raises ConsoleError."""
    connection = await connect(host)
    try:
        return await start_channel(connection, host, verb, path, actor)
    except BaseException:  # a cancelled task as well: the connection would stay open
        connection.abort()
        raise


async def start_channel(
    connection: asyncssh.SSHClientConnection,
    host: HostConfig,
    verb: str = "link",
    path: str | None = None,
    actor: str = "unknown",
) -> Channel:
    """Bring the release over a connection that is there and start `verb`; raises ConsoleError, and the connection stays."""
    command = bootstrap_command(host, release(), verb, path, actor)
    slurm_job = None
    try:
        async with asyncio.timeout(BOOT_TIMEOUT_S):
            if host.slurm is not None:
                slurm_job = await slurm.require_running(connection, host)
                command = slurm.step_command(slurm_job, command)
            process = await connection.create_process(command, encoding=None, window=_WINDOW_BYTES, max_pktsize=1 << 15)
            channel = Channel(connection, process, slurm_job)
            await channel.boot()
    except asyncssh.ChannelOpenError as error:
        if connection.is_closed():
            raise ConnectionFailed(
                f"{host.name} was reached, but {explain_end(witness_of(connection).lost)} before a command could run"
            ) from error
        raise ConnectionFailed(
            f"{host.name} accepted the login but opens no session for a command: {error.reason}",
            hint="MaxSessions of its SSH server may be used up or 0, or this account may not run commands there",
            retryable=False,
        ) from error
    except (OSError, asyncssh.Error, TimeoutError) as error:
        raise ConnectionFailed(
            f"{host.name} was reached, but the host side did not start: {error or 'no word from it in time'}",
            hint="does a command run there over SSH? try `ssh HOST true`",
        ) from error
    return channel
