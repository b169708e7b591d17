"""Starting, reusing and stopping the embedded host's SSH server."""

import asyncio
import contextlib
import getpass
import os
import signal
import subprocess
import time

import asyncssh
import msgspec

from console.config.hosts import HostConfig
from console.embedded.locations import EmbeddedHome
from console.embedded.server import Address
from console.errors import ConnectionFailed, ConsoleError
from console.link.host_keys import Endpoint, remember
from remote.protocol.errors import ErrorCode, ErrorInfo

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.05


async def ensure_running(home: EmbeddedHome) -> HostConfig:
    """The embedded host as an ordinary host, its server started when none runs and its host key known."""
    require_engine(home)
    home.stopped_file.unlink(missing_ok=True)
    address = await _answering(home)
    if address is None:
        address = await _start(home)
    remember(Endpoint("127.0.0.1", address.port), asyncssh.import_public_key(address.host_key))
    return HostConfig(
        name=home.name,
        address="127.0.0.1",
        port=address.port,
        user=getpass.getuser(),
        identity_file=str(home.client_key_file),
        root=str(home.root),
        python=str(home.engine_python),
    )


def refuse_stopped(home: EmbeddedHome) -> None:
    """Raise ConsoleError when somebody stopped the server: a console that lost it does not bring it back by itself."""
    if home.stopped_file.exists():
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.CONNECTION,
                message=f"{home.name} was stopped by hand; opening it anew starts it again",
                hint="its jobs go on meanwhile",
            )
        )


async def is_running(home: EmbeddedHome) -> bool:
    """Whether its SSH server answers."""
    return await _answering(home) is not None


def require_engine(home: EmbeddedHome) -> None:
    """Raise ConsoleError when the engine's environment is not installed."""
    if not home.engine_python.exists():
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.PRECONDITION,
                message=f"the embedded host is not installed: {home.engine_python} is missing",
                hint="it takes a few minutes and about 4 GB",
                next_command="roost embedded prepare",
            )
        )


def _read_address(home: EmbeddedHome) -> Address | None:
    try:
        return msgspec.json.decode(home.address_file.read_bytes(), type=Address)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


async def _answering(home: EmbeddedHome) -> Address | None:
    address = _read_address(home)
    if address is None:
        return None
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", address.port)
    except OSError:
        return None
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return address


async def _start(home: EmbeddedHome) -> Address:
    home.server.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = home.server / "server.log"
    deadline = time.monotonic() + START_TIMEOUT_S
    process: subprocess.Popen[bytes] | None = None
    while time.monotonic() < deadline:
        if (address := await _answering(home)) is not None:
            return address
        # Ours ends when another console's server has the lock, or one that is just being stopped.
        if process is None or process.poll() is not None:
            with log.open("ab") as out:
                process = subprocess.Popen(  # noqa: ASYNC220 - detached on purpose, it outlives this console
                    home.server_command,
                    env={**os.environ, **home.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        await asyncio.sleep(_POLL_S)
    raise ConnectionFailed(
        f"the embedded host's SSH server did not start within {START_TIMEOUT_S:g} s", hint=f"its log is {log}"
    )


async def stop(home: EmbeddedHome) -> bool:
    """Ask the server to end and wait for it; False when none ran."""
    asked: set[int] = set()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while (address := await _answering(home)) is not None:
        if time.monotonic() > deadline:
            raise ConnectionFailed(f"the embedded host's SSH server (pid {address.pid}) does not end", retryable=False)
        # A console that started at the same time may have a server of its own waiting for the lock.
        if address.pid not in asked:
            asked.add(address.pid)
            home.stopped_file.touch()
            with contextlib.suppress(ProcessLookupError):
                os.kill(address.pid, signal.SIGTERM)
        await asyncio.sleep(_POLL_S)
    return bool(asked)
