"""The background session with a host: the same answers through it, and nothing weaker; whatever becomes of it, a verb goes on."""

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed
from console.link import resident, resident_place
from console.link.client import HostLink
from console.link.host_keys import known_hosts_file
from console.link.resident import Order, Resident
from console.link.resident_place import held, is_own, socket_path
from console.link.warm import begin_session, open_warm
from remote.protocol.requests import JobList, ListJobs
from tests.link.command import name_in_configuration, roost

PATIENCE_S = 60.0


@pytest.fixture
def runtime(monkeypatch):
    directory = Path(tempfile.mkdtemp(prefix="roost-run-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    yield directory
    for path in directory.glob("roost/*.lock"):
        _end(path)
    shutil.rmtree(directory)


def _end(lock: Path) -> None:
    """End the process that holds a lock, as /proc says."""
    inode = str(lock.stat().st_ino)
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode and int(words[4]) != os.getpid():
            os.kill(int(words[4]), signal.SIGKILL)


async def until(condition) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def session_with(host):
    """A session in this very process, so that its clocks can be set."""
    path = socket_path(host)
    stale = path.stat().st_ctime_ns if path.exists() else None
    one = Resident(Order(host=host, path=str(path)))
    serving = asyncio.create_task(one.serve())
    try:
        await until(lambda: serving.done() or (is_own(path, stat.S_ISSOCK) and path.stat().st_ctime_ns != stale))
        assert not serving.done()
        yield serving
    finally:
        one.end()
        await asyncio.gather(serving, return_exceptions=True)
    assert not path.exists()


def link(host) -> HostLink:
    return HostLink(host, actor="ann", may_be_warm=True)


async def ask(host) -> tuple[bool, JobList]:
    async with link(host) as there:
        return there.is_warm, await there.call(ListJobs())


async def test_a_verb_begins_a_session_and_the_next_one_uses_it_with_the_same_answers(embedded, runtime):
    name_in_configuration(embedded)
    words = ("jobs", "--host", "lab", "--json")
    cold = await asyncio.to_thread(roost, *words)
    sockets = runtime / "roost"
    await until(lambda: list(sockets.glob("*.sock")))
    (path,) = sockets.glob("*.sock")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    warm = await asyncio.to_thread(roost, *words)
    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout) == (0, cold.stdout)
    missing = ("status", "absent", "--host", "lab", "--json")
    told = await asyncio.to_thread(roost, *missing)
    path.unlink()
    assert json.loads(told.stdout) == json.loads((await asyncio.to_thread(roost, *missing)).stdout)


async def test_links_go_through_one_session_each_with_its_own_process(embedded, runtime):
    async with session_with(embedded), link(embedded) as one, link(embedded) as other:
        assert (one.is_warm, other.is_warm) == (True, True)
        assert await one.call(ListJobs()) == await other.call(ListJobs()) == JobList(jobs=[])
        assert (await ask(embedded))[0]


async def test_a_port_of_the_host_is_reached_through_it_and_a_closed_one_is_told(embedded, runtime):
    async def echo(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with session_with(embedded), link(embedded) as there:
        reader, writer = await there.open_port(port)
        writer.write(b"hello\n")
        await writer.drain()
        assert await reader.read(100) == b"hello\n"
        writer.close()
        server.close()
        await server.wait_closed()
        with pytest.raises(Exception, match=f"port {port}"):
            await there.open_port(port)


async def test_a_link_outlives_its_session(embedded, runtime):
    async with session_with(embedded) as serving, link(embedded) as there:
        assert there.is_warm
        serving.cancel()
        assert await there.call(ListJobs()) == JobList(jobs=[])


async def test_a_socket_that_nobody_serves_is_passed_over_and_replaced(embedded, runtime):
    path = socket_path(embedded)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    path.chmod(0o600)
    assert (await ask(embedded))[0] is False
    async with session_with(embedded):
        assert (await ask(embedded))[0] is True


async def test_what_others_could_use_is_not_used(embedded, runtime):
    async with session_with(embedded):
        path = socket_path(embedded)
        path.chmod(0o666)
        assert await open_warm(embedded) is None, "a socket that others may write to"
        path.chmod(0o600)
        (runtime / "roost").chmod(0o755)
        assert await open_warm(embedded) is None, "a directory that others may enter"
        (runtime / "roost").chmod(0o700)
        assert (await ask(embedded))[0] is True


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file to another user")
async def test_another_users_socket_is_not_used(embedded, runtime):
    async with session_with(embedded):
        path = socket_path(embedded)
        os.chown(path, 1, 1)
        assert await open_warm(embedded) is None
        os.chown(path, 0, 0)


async def test_another_users_process_gets_no_answer(embedded, runtime, monkeypatch):
    async with session_with(embedded):
        monkeypatch.setattr(resident, "is_own_peer", lambda _: False)
        assert await open_warm(embedded) is None
        monkeypatch.undo()


def test_another_release_configuration_or_agent_has_another_socket(embedded_data, runtime, monkeypatch, tmp_path):
    host = HostConfig(name="lab", address="192.0.2.1")
    first = socket_path(host)
    assert socket_path(host) == first
    assert socket_path(msgspec.structs.replace(host, user="bob")) != first
    monkeypatch.setenv("SSH_AUTH_SOCK", "/elsewhere")
    assert socket_path(host) != first
    monkeypatch.undo()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr(resident_place, "_code", lambda: [[("console/x.py", 1, 2)]])
    assert socket_path(host) != first
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert socket_path(host) is None


async def test_a_key_that_is_believed_no_more_ends_the_session(embedded, runtime):
    async with session_with(embedded) as serving:
        known = known_hosts_file().read_text()
        known_hosts_file().write_text(f"# another line\nelsewhere {known.split(' ', 1)[1]}{known}")
        assert (await ask(embedded))[0] is True, "what is said of other hosts does not matter"
        known_hosts_file().write_text(known.replace("ssh-ed25519 AAAA", "ssh-ed25519 BBBB"))
        assert await open_warm(embedded) is None
        await asyncio.wait_for(serving, PATIENCE_S)
    known_hosts_file().write_text(known)


async def test_a_host_that_shows_another_key_ends_the_session_and_is_refused_as_without_it(
    openssh, runtime, tmp_path, monkeypatch
):
    host = openssh.config(tmp_path / "root")
    openssh.remember()
    monkeypatch.setattr(resident, "TRUST_S", 0.0)
    async with session_with(host) as serving:
        assert (await ask(host))[0] is True
        openssh.change_host_key()
        openssh.start()
        with pytest.raises(ConnectionFailed, match="not the one that was accepted before"):
            await ask(host)
        await asyncio.wait_for(serving, PATIENCE_S)


async def test_a_session_that_nobody_uses_ends_and_one_in_use_does_not(embedded, runtime, monkeypatch):
    monkeypatch.setattr(resident, "IDLE_S", 0.0)
    path = socket_path(embedded)
    serving = asyncio.create_task(Resident(Order(host=embedded, path=str(path))).serve())
    await asyncio.wait_for(serving, PATIENCE_S)
    assert not path.exists()


async def test_a_lost_connection_ends_the_session(embedded, proxy, runtime):
    through = msgspec.structs.replace(embedded, port=proxy.port)
    async with session_with(through) as serving:
        proxy.cut()
        await asyncio.wait_for(serving, PATIENCE_S)
        assert (await ask(through))[0] is False


async def test_a_session_that_cannot_be_had_is_not_tried_by_every_verb(embedded, runtime, monkeypatch):
    unreachable = msgspec.structs.replace(embedded, port=1)
    path = socket_path(unreachable)
    begin_session(unreachable)
    await until(path.with_suffix(".failed").exists)
    started = []
    monkeypatch.setattr("subprocess.Popen", lambda *words, **_: started.append(words))
    begin_session(unreachable)
    assert started == []


def test_only_one_process_is_the_session(embedded_data, runtime):
    path = runtime / "x.sock"
    with held(path) as first, held(path) as second:
        assert (first, second) == (True, False)
    with held(path) as again:
        assert again
