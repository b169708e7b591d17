"""The link against real servers: strictness, deployment, and streams that survive a cut connection byte for byte."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import psutil
import pytest

from console.config.hosts import HostConfig
from console.errors import ConfirmationNeeded, ConnectionFailed, HostError
from console.link import session
from console.link.client import HostLink
from console.link.deploy import release
from console.state.link import Closed, Lost, Up
from remote.protocol.errors import ErrorCode
from remote.protocol.frames import LogData, Telemetry
from remote.protocol.ids import new_job_id, new_op_id
from remote.protocol.jobs import Finished, Job, is_over
from remote.protocol.requests import GetJob, JobList, JobReply, ListJobs, ReadTelemetry, StartJob, Watch
from remote.protocol.specs import MappingCopySpec
from remote.protocol.telemetry import TelemetrySample

GOLDEN = Path(__file__).parents[1] / "golden/kimi-k2.5-vocabulary"


async def copy_mapping(link: HostLink, destination: Path) -> Job:
    spec = MappingCopySpec(source=str(GOLDEN), destination=str(destination))
    request = StartJob(job_id=new_job_id("copy"), spec=spec, op_id=new_op_id())
    reply = await link.call(request)
    assert isinstance(reply, JobReply)
    return await until_over(link, reply.job.job_id)


async def until_over(link: HostLink, job_id: str) -> Job:
    async with asyncio.timeout(60):
        while True:
            reply = await link.call(GetJob(job_id=job_id))
            assert isinstance(reply, JobReply)
            if is_over(reply.job.state):
                return reply.job
            await asyncio.sleep(0.05)


async def test_the_embedded_host_is_an_ordinary_host(embedded: HostConfig, tmp_path: Path) -> None:
    async with HostLink(embedded, actor="test") as link:
        assert isinstance(link.state, Up)
        assert link.state.welcome.release == release().sha256
        assert isinstance(await link.call(ReadTelemetry()), TelemetrySample)
        job = await copy_mapping(link, tmp_path / "mapping")
        assert isinstance(job.state, Finished)
        assert job.state.outcome == "succeeded", job.state.reason
        assert job.created_by == "test"
    assert (tmp_path / "mapping/d2t.pt").read_bytes() == (GOLDEN / "d2t.pt").read_bytes()


async def test_a_release_is_brought_once(embedded: HostConfig) -> None:
    async with HostLink(embedded, actor="test"):
        pass
    directory = Path(embedded.root) / "releases" / release().sha256
    born = directory.stat().st_ino
    async with HostLink(embedded, actor="test"):
        pass
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    assert directory.stat().st_ino == born


async def test_a_refusal_of_the_host_arrives_with_its_code(embedded: HostConfig) -> None:
    async with HostLink(embedded, actor="test") as link:
        with pytest.raises(HostError) as caught:
            await link.call(GetJob(job_id="no-such-job"))
    assert caught.value.info.code == ErrorCode.NOT_FOUND


async def test_openssh_unknown_key_is_asked_for_and_trusted_once(openssh, tmp_path: Path) -> None:
    host = openssh.config(tmp_path / "root")
    with pytest.raises(ConfirmationNeeded) as caught:
        async with HostLink(host, actor="test"):
            pass
    fingerprint = openssh.host_key.get_fingerprint()
    assert fingerprint in caught.value.info.message
    assert caught.value.info.next_command == f"roost hosts trust lab --fingerprint {fingerprint}"
    with pytest.raises(ConnectionFailed, match="nothing was accepted"):
        await session.trust(host, "SHA256:wrong")
    await session.trust(host, fingerprint)
    async with HostLink(host, actor="test") as link:
        assert isinstance(await link.call(ListJobs()), JobList)


async def test_a_host_by_name_is_asked_for_like_one_by_number(openssh, tmp_path: Path) -> None:
    host = msgspec.structs.replace(openssh.config(tmp_path / "root"), address="localhost")
    with pytest.raises(ConfirmationNeeded):
        async with HostLink(host, actor="test"):
            pass
    await session.trust(host, openssh.host_key.get_fingerprint())
    async with HostLink(host, actor="test") as link:
        assert isinstance(await link.call(ListJobs()), JobList)


async def test_a_trusted_key_is_not_replaced_by_trusting_again(openssh, tmp_path: Path) -> None:
    openssh.remember()
    openssh.change_host_key()
    openssh.start()
    with pytest.raises(ConnectionFailed, match="trusted with another key"):
        await session.trust(openssh.config(tmp_path / "root"), openssh.host_key.get_fingerprint())


async def test_leaving_closes_the_connection_and_ends_the_events(embedded: HostConfig) -> None:
    async with HostLink(embedded, actor="test") as link:
        events = link.events()
        assert isinstance(await anext(events), Up)
    async with asyncio.timeout(10):
        rest = [event async for event in events]
    assert isinstance(rest[-1], Closed)
    processes = [p for p in psutil.process_iter() if embedded.root in " ".join(_command(p))]
    _, alive = psutil.wait_procs([p for p in processes if "remote" in _command(p)], timeout=10)
    assert alive == []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def test_openssh_changed_key_is_a_hard_stop(openssh, tmp_path: Path) -> None:
    openssh.remember()
    openssh.change_host_key()
    openssh.start()
    with pytest.raises(ConnectionFailed, match="not the one that was accepted before") as caught:
        async with HostLink(openssh.config(tmp_path / "root"), actor="test"):
            pass
    assert not caught.value.info.retryable


async def test_a_key_that_is_not_accepted_says_what_was_tried(openssh, tmp_path: Path) -> None:
    openssh.remember()
    (openssh.directory / "authorized_keys").write_text("")
    with pytest.raises(ConnectionFailed, match="client_key") as caught:
        async with HostLink(openssh.config(tmp_path / "root"), actor="test"):
            pass
    assert not caught.value.info.retryable


async def test_the_embedded_server_accepts_its_own_key_only(embedded: HostConfig, openssh) -> None:
    stranger = msgspec.structs.replace(embedded, identity_file=str(openssh.client_key))
    with pytest.raises(ConnectionFailed, match="refused the login"):
        async with HostLink(stranger, actor="test"):
            pass


async def test_a_python_that_lacks_packages_is_named_with_what_it_lacks(embedded: HostConfig, tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {shutil.which("python3")} -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(ConnectionFailed, match="bare-python lacks msgspec"):
        async with HostLink(msgspec.structs.replace(embedded, python=str(bare)), actor="test"):
            pass


async def test_a_noisy_shell_does_not_disturb(openssh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openssh.remember()
    keys = (openssh.directory / "client_key.pub").read_text()
    noise = 'command="echo hello; echo @@not-a-marker; eval \\"$SSH_ORIGINAL_COMMAND\\""'
    (openssh.directory / "authorized_keys").write_text(f"{noise} {keys}")
    async with HostLink(openssh.config(tmp_path / "root"), actor="test") as link:
        assert isinstance(await link.call(ListJobs()), JobList)


async def test_a_log_goes_on_without_a_gap_or_a_repeat_over_cut_connections(
    embedded: HostConfig, proxy, tmp_path: Path
) -> None:
    through = msgspec.structs.replace(embedded, port=proxy.port)
    received = b""
    lost = 0
    async with HostLink(through, actor="test") as link:
        job = await copy_mapping(link, tmp_path / "mapping")
        log = Path(embedded.root) / "jobs" / job.job_id / "out.log"
        expected = log.read_bytes()
        await link.watch(Watch(logs={job.job_id: 0}))
        events = link.events()
        async with asyncio.timeout(120):
            for number in range(40):
                block = f"line {number} ".encode() + b"\xff\x00\x1b[31m" + bytes(range(number)) + b"\n"
                with log.open("ab") as file:
                    file.write(block)
                expected += block
                if number in (10, 25):
                    proxy.cut()
                while len(received) < len(expected):
                    event = await anext(events)
                    lost += isinstance(event, Lost)
                    if isinstance(event, LogData):
                        assert event.offset == len(received)
                        received += event.data
    assert received == expected
    assert lost >= 2


async def test_a_call_that_meets_a_cut_connection_is_answered_after_it(embedded: HostConfig, proxy) -> None:
    through = msgspec.structs.replace(embedded, port=proxy.port)
    async with HostLink(through, actor="test") as link:
        proxy.cut()
        assert isinstance(await link.call(ListJobs(), timeout_s=60), JobList)


async def test_a_reading_replaces_the_one_before_it(embedded: HostConfig) -> None:
    async with HostLink(embedded, actor="test") as link:
        await link.watch(Watch(telemetry=True))
        first = None
        async with asyncio.timeout(30):
            while first is None or len({id(e) for e in link._inbox._events if isinstance(e, Telemetry)}) == 0:
                first = next((e for e in link._inbox._events if isinstance(e, Telemetry)), None)
                await asyncio.sleep(0.05)
            while (now := next((e for e in link._inbox._events if isinstance(e, Telemetry)), first)) is first:
                await asyncio.sleep(0.05)
        waiting = [event for event in link._inbox._events if isinstance(event, Telemetry)]
    assert len(waiting) == 1
    assert now.sample.sampled_at > first.sample.sampled_at
