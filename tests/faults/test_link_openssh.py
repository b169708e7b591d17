"""OpenSSH's server under faults: its processes die or hang, its limits are reached, its host is noisy."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from console.errors import ConnectionFailed
from console.link.client import HostLink
from console.state.link import Lost, Up
from remote.jobs import process
from remote.protocol.jobs import Running
from remote.protocol.requests import Ping
from tests.faults.linked import PATIENCE_S, QUICK
from tests.jobs.test_supervised_jobs import SLEEP
from tests.jobs.workshop import Workshop, end_everything_below
from tests.link.servers import OpenSSH


@pytest.fixture
def shop(openssh: OpenSSH, tmp_path: Path) -> Iterator[Workshop]:
    """Jobs below the root that the server's host configuration names."""
    openssh.remember()
    yield Workshop(tmp_path / "root")
    for session in session_processes(openssh):
        process.send_signal(session, signal.SIGKILL)
    end_everything_below(tmp_path / "root")


def link_to(openssh: OpenSSH, shop: Workshop, **changes: object) -> HostLink:
    return HostLink(msgspec.structs.replace(openssh.config(shop.root), **changes), actor="ann", timings=QUICK)


def session_processes(openssh: OpenSSH) -> list[process.Process]:
    """The processes below the server that carry a connection each."""
    server = openssh.pid
    family, found = {server}, []
    for _ in range(3):
        for one in process.every_process():
            if one.parent in family and one.pid not in family:
                command = Path(f"/proc/{one.pid}/cmdline").read_bytes()
                if command.startswith(b"sshd"):
                    family.add(one.pid)
                    found.append(one)
    return found


async def until_state(link: HostLink, kind: type) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for event in link.events():
            if isinstance(event, kind):
                return


async def test_a_suspended_ssh_session_is_left_and_a_new_one_made(openssh: OpenSSH, shop: Workshop) -> None:
    shop.start("sleeper", SLEEP)
    async with link_to(openssh, shop) as link:
        await link.call(Ping())
        sessions = session_processes(openssh)
        assert sessions
        for session in sessions:
            process.send_signal(session, signal.SIGSTOP)
        await until_state(link, Lost)
        await until_state(link, Up)
        await link.call(Ping())
        for session in sessions:
            process.send_signal(session, signal.SIGKILL)
    assert isinstance(shop.store.get("sleeper").state, Running)


async def test_dstack_2669_a_restart_of_the_ssh_server_touches_no_job(openssh: OpenSSH, shop: Workshop) -> None:
    async with link_to(openssh, shop) as link:
        shop.start("sleeper", SLEEP)
        started = (shop.store.directory("sleeper") / "started.json").read_bytes()
        for session in session_processes(openssh):
            process.send_signal(session, signal.SIGKILL)
        openssh.kill()
        await until_state(link, Lost)
        openssh.start()
        await until_state(link, Up)
        await link.call(Ping())
    assert isinstance(shop.store.get("sleeper").state, Running)
    assert (shop.store.directory("sleeper") / "started.json").read_bytes() == started


async def test_a_server_that_opens_no_session_is_named(openssh: OpenSSH, shop: Workshop) -> None:
    openssh.restart_with("MaxSessions 0")
    with pytest.raises(ConnectionFailed, match="accepted the login but opens no session") as refused:
        async with link_to(openssh, shop):
            pass
    assert "MaxSessions" in (refused.value.info.hint or "")
    assert not refused.value.info.retryable


def occupy_the_login(openssh: OpenSSH) -> socket.socket:
    """The one connection that the server allows before its login; the probe of the server's start may still hold it."""
    while True:
        idler = socket.create_connection(("127.0.0.1", openssh.port))
        if idler.recv(16).startswith(b"SSH-"):
            return idler
        idler.close()


async def test_a_server_with_too_many_logins_at_once_is_named_and_tried_again(openssh: OpenSSH, shop: Workshop) -> None:
    openssh.restart_with("MaxStartups 1:100:1")
    with occupy_the_login(openssh):
        with pytest.raises(ConnectionFailed, match="dropped the connection before the login") as refused:
            async with link_to(openssh, shop):
                pass
        assert refused.value.info.retryable
        assert "MaxStartups" in (refused.value.info.hint or "")
    async with asyncio.timeout(PATIENCE_S):
        while not await can_connect(openssh, shop):
            pass


async def can_connect(openssh: OpenSSH, shop: Workshop) -> bool:
    try:
        async with link_to(openssh, shop) as link:
            await link.call(Ping())
    except ConnectionFailed as error:
        if not error.info.retryable:
            raise
        return False
    return True


async def test_reconnecting_leaks_no_session(openssh: OpenSSH, shop: Workshop) -> None:
    openssh.restart_with("MaxSessions 1")
    for _ in range(4):
        async with link_to(openssh, shop) as link:
            await link.call(Ping())
    await asyncio.to_thread(shop.wait_for, lambda: session_processes(openssh) == [])


async def test_paramiko_213_a_flood_on_standard_error_does_not_stall_the_link(
    openssh: OpenSSH, shop: Workshop, tmp_path: Path
) -> None:
    noisy = tmp_path / "noisy-python"
    noisy.write_text(
        "#!/bin/sh\n"
        "head -c 6000000 /dev/zero | tr '\\0' 'e' >&2\n"
        "(while sleep 0.05; do head -c 400000 /dev/zero >&2 || exit; done) >/dev/null &\n"
        f'exec {sys.executable} "$@"\n'
    )
    noisy.chmod(0o755)
    async with link_to(openssh, shop, python=str(noisy)) as link:
        for _ in range(20):
            await link.call(Ping())


def test_the_tests_server_is_the_real_one(openssh: OpenSSH) -> None:
    with socket.create_connection(("127.0.0.1", openssh.port)) as connection:
        assert connection.recv(64).startswith(b"SSH-2.0-OpenSSH")
    assert os.path.basename(os.readlink(f"/proc/{openssh.pid}/exe")).startswith("sshd")
