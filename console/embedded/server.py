"""The loopback SSH server: one client key, commands as the current user, forwarding to loopback only, ends when idle.

Commands get byte pipes and a session of their own. When a connection drops, the command sees the end of its standard input and
is otherwise left alone, as a link process that ends by itself wants it; jobs are detached from it anyway.
"""

import asyncio
import contextlib
import fcntl
import ipaddress
import os
import signal
import sys
from pathlib import Path

import asyncssh
import msgspec

from console.embedded.locations import EmbeddedHome

IDLE_S = 900.0
_IDLE_CHECK_S = 5.0
_HUNG_UP_GRACE_S = 10.0
_BLOCK_BYTES = 1 << 16


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens and which host key it shows."""

    port: int
    pid: int
    host_key: str


class AlreadyRunning(Exception):
    """Another server holds the lock of this directory."""


class _Connections:
    """How many clients are connected, and since when nobody is."""

    def __init__(self) -> None:
        self.count = 0
        self.idle_since = asyncio.get_running_loop().time()

    def opened(self) -> None:
        self.count += 1

    def closed(self) -> None:
        self.count -= 1
        self.idle_since = asyncio.get_running_loop().time()

    def idle_s(self) -> float:
        return 0.0 if self.count else asyncio.get_running_loop().time() - self.idle_since


class _Server(asyncssh.SSHServer):
    def __init__(self, connections: _Connections) -> None:
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:  # noqa: ARG002 - asyncssh's interface
        self._connections.opened()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncssh's interface
        self._connections.closed()

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:  # noqa: ARG002
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(dest_host).is_loopback
        return dest_host == "localhost"


def _tell_end(process: "asyncssh.SSHServerProcess[bytes]", code: int) -> None:
    if code < 0:
        process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
    else:
        process.exit(code)


async def _run_command(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    if process.command is None:
        process.stderr.write(b"this server runs commands only\n")
        process.exit(1)
        return
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        process.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path.home(),
        start_new_session=True,
    )
    assert child.stdin is not None, "its standard streams are pipes"
    feeding = asyncio.create_task(_feed(process, child.stdin))
    try:
        # The status goes out after the output, or a client would see the end before the last words.
        await asyncio.gather(_forward(child.stdout, process.stdout), _forward(child.stderr, process.stderr))
        _tell_end(process, await child.wait())
    except (OSError, asyncssh.Error):
        return
    finally:
        feeding.cancel()
        await _let_end(child)


async def _feed(process: "asyncssh.SSHServerProcess[bytes]", target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while block := await process.stdin.read(_BLOCK_BYTES):
            target.write(block)
            await target.drain()
    target.close()


async def _forward(source: asyncio.StreamReader | None, target: "asyncssh.SSHWriter[bytes]") -> None:
    assert source is not None, "its standard streams are pipes"
    while block := await source.read(_BLOCK_BYTES):
        target.write(block)
        await target.drain()


async def _let_end(child: asyncio.subprocess.Process) -> None:
    """A command whose client hung up gets the end of its input and some time; one that ignores both is terminated."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(_HUNG_UP_GRACE_S):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


def _private_key(path: Path) -> asyncssh.SSHKey:
    if not path.exists():
        key = asyncssh.generate_private_key("ssh-ed25519", comment="roost embedded host")
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.touch(mode=0o600)
        key.write_private_key(temporary)
        temporary.replace(path)
    return asyncssh.read_private_key(path)


def _publish(home: EmbeddedHome, address: Address) -> None:
    temporary = home.address_file.with_name(f".address.{os.getpid()}")
    temporary.touch(mode=0o600)
    temporary.write_bytes(msgspec.json.encode(address))
    temporary.replace(home.address_file)


async def serve(home: EmbeddedHome) -> None:
    """Serve until idle or told to end; raises AlreadyRunning when another server has the directory."""
    home.server.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.server.chmod(0o700)
    home.root.mkdir(exist_ok=True, mode=0o700)
    with (home.server / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning from None
        await _serve_locked(home)


async def _serve_locked(home: EmbeddedHome) -> None:
    host_key, client_key = _private_key(home.server / "host_key"), _private_key(home.client_key_file)
    authorized = asyncssh.import_authorized_keys(client_key.export_public_key("openssh").decode())
    connections = _Connections()
    acceptor = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: _Server(connections),
        server_host_keys=[host_key],
        authorized_client_keys=authorized,
        process_factory=_run_command,
        password_auth=False,
        kbdint_auth=False,
        agent_forwarding=False,
        x11_forwarding=False,
        allow_pty=False,
        encoding=None,
        keepalive_interval=15,
        config=[],
    )
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    public = host_key.export_public_key("openssh").decode().strip()
    _publish(home, Address(port=acceptor.get_port(), pid=os.getpid(), host_key=public))
    try:
        while not stop.is_set() and connections.idle_s() < IDLE_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_CHECK_S):
                    await stop.wait()
    finally:
        home.address_file.unlink(missing_ok=True)
        acceptor.close()


def main(arguments: list[str]) -> int:
    """Run the server of the directory that is named."""
    directory = Path(arguments[0])
    try:
        asyncio.run(serve(EmbeddedHome(directory=directory, engine_python=directory / "engine/bin/python")))
    except AlreadyRunning:
        sys.stderr.write(f"a server for {directory} is running already\n")
        return 1
    return 0
