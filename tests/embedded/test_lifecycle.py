"""The embedded host's server: one instance, reused, stopped; nobody else gets in or through."""

import asyncio
import sys
from pathlib import Path

import asyncssh
import pytest

from console import operations, operations_hosts
from console.embedded import lifecycle
from console.embedded.locations import EmbeddedHome
from console.errors import ConsoleError
from remote.protocol.errors import ErrorCode


@pytest.fixture
def home(embedded_data: Path) -> EmbeddedHome:
    return EmbeddedHome(directory=embedded_data / "embedded", engine_python=Path(sys.executable))


async def test_many_consoles_share_one_server_that_stops_when_told(home: EmbeddedHome) -> None:
    hosts = await asyncio.gather(*(lifecycle.ensure_running(home) for _ in range(4)))
    assert len({host.port for host in hosts}) == 1
    assert (home.client_key_file.stat().st_mode & 0o777, home.server.stat().st_mode & 0o777) == (0o600, 0o700)
    assert await lifecycle.stop(home)
    assert not home.address_file.exists()


async def test_what_was_stopped_by_hand_is_started_by_whoever_opens_it_and_by_nobody_who_only_lost_it(
    embedded_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = EmbeddedHome.default()
    home = EmbeddedHome(directory=default.directory, engine_python=Path(sys.executable))
    monkeypatch.setattr(EmbeddedHome, "default", lambda: home)
    await operations.find_host(operations.EMBEDDED)
    await operations._find_again(operations.EMBEDDED)
    assert await operations_hosts.stop_embedded()
    with pytest.raises(ConsoleError, match="stopped by hand") as caught:
        await operations._find_again(operations.EMBEDDED)
    assert not caught.value.info.retryable
    assert not await lifecycle.is_running(home)
    await operations.find_host(operations.EMBEDDED)
    await operations._find_again(operations.EMBEDDED)
    assert await operations_hosts.stop_embedded()


async def test_a_host_that_is_not_installed_says_how_to_install_it(embedded_data: Path) -> None:
    with pytest.raises(ConsoleError) as caught:
        await lifecycle.ensure_running(EmbeddedHome.default())
    assert caught.value.info.code == ErrorCode.PRECONDITION
    assert caught.value.info.next_command == "roost embedded prepare"


async def test_forwarding_leads_to_loopback_only(home: EmbeddedHome) -> None:
    host = await lifecycle.ensure_running(home)
    async with asyncssh.connect(
        host.address,
        host.port,
        username=host.user,
        client_keys=[str(home.client_key_file)],
        known_hosts=None,
        config=None,
    ) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("192.0.2.1", 80)
        result = await connection.run("echo out; echo err >&2; exit 7", encoding=None)
        assert (result.stdout, result.stderr, result.exit_status) == (b"out\n", b"err\n", 7)
    await lifecycle.stop(home)
