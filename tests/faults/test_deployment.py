"""Bringing the host side: noisy shells, broken uploads, homes that execute nothing, upgrades under running jobs."""

import asyncio
import contextlib
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed
from console.link import channel, deploy
from console.link.client import HostLink
from console.link.deploy import Release
from console.state.link import Up
from remote.jobs.store import JobStore
from remote.link import releases
from remote.protocol.jobs import Finished, Running
from remote.protocol.requests import ListJobs, Ping
from tests.faults.linked import QUICK, ground_before
from tests.jobs.test_supervised_jobs import SLEEP
from tests.jobs.workshop import Workshop, plan_program
from tests.link.servers import OpenSSH

LONG_AGO = releases.UNUSED_S + 60


def another_release() -> Release:
    """The release of a console that differs by one file."""
    with tarfile.open(fileobj=io.BytesIO(deploy.release().payload), mode="r:gz") as archive:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as other:
            for member in archive.getmembers():
                other.addfile(member, archive.extractfile(member))
            note = tarfile.TarInfo("remote/another_release.txt")
            other.addfile(note, io.BytesIO())
    payload = gzip.compress(raw.getvalue(), mtime=0)
    return Release(hashlib.sha256(payload).hexdigest(), payload)


async def connect_once(host: HostConfig) -> str:
    """The release that answered."""
    async with HostLink(host, actor="test", timings=QUICK) as link:
        await link.call(Ping())
        assert isinstance(link.state, Up)
        return link.state.welcome.release


def make_old(path: Path) -> None:
    then = time.time() - LONG_AGO
    os.utime(path, (then, then))


async def test_dstack_3474_an_upgrade_keeps_the_release_of_a_running_job(
    embedded: HostConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await connect_once(embedded)
    root = Path(embedded.root)
    old = Workshop(root)
    old.store = JobStore(root, root / "releases" / first, sys.executable, plan=plan_program)
    old.start("old-job", SLEEP)
    newer = another_release()
    monkeypatch.setattr(channel, "release", lambda: newer)
    make_old(root / "releases" / first)
    assert await connect_once(embedded) == newer.sha256
    store = JobStore(root, root / "releases" / newer.sha256, sys.executable, plan=plan_program)
    assert releases.remove_unused_releases(store) == []
    assert (root / "releases" / first / "remote/jobs/supervisor.py").exists()
    assert isinstance(store.get("old-job").state, Running)

    old.stop("old-job")
    old.until("old-job", lambda job: isinstance(job.state, Finished))
    make_old(root / "releases" / first)
    assert releases.remove_unused_releases(store) == [first]
    assert [path.name for path in (root / "releases").iterdir()] == [newer.sha256]


async def test_a_release_that_a_link_uses_or_that_was_just_asked_for_stays(
    embedded: HostConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(embedded.root)
    async with HostLink(embedded, actor="test", timings=QUICK) as link:
        await link.call(Ping())
        mine = link.state.welcome.release
        other = JobStore(root, root / "releases" / ("0" * 64), sys.executable)
        assert releases.remove_unused_releases(other) == [], "it was asked for a moment ago"
        make_old(root / "releases" / mine)
        assert releases.remove_unused_releases(other) == [], "a link uses it"
        await link.call(ListJobs())
    ground = Workshop(root)
    make_old(root / "releases" / mine)
    ground.wait_for(lambda: releases.remove_unused_releases(other) == [mine])


async def test_vscode_remote_6414_a_half_made_release_is_no_release(embedded: HostConfig) -> None:
    """An upload that broke off leaves something that is neither used, nor in the way, nor kept for ever."""
    directory = Path(embedded.root) / "releases"
    half = directory / ".release-half"
    (half / "remote").mkdir(parents=True)
    (directory / deploy.release().sha256).mkdir()
    assert await connect_once(embedded) == deploy.release().sha256
    make_old(half)
    store = JobStore(Path(embedded.root), directory / deploy.release().sha256, sys.executable)
    releases.remove_unused_releases(store)
    assert [path.name for path in directory.iterdir()] == [deploy.release().sha256]


async def test_an_upload_that_is_cut_is_made_again_from_its_beginning(embedded: HostConfig) -> None:
    async with ground_before(embedded) as ground:
        ground.network.bytes_per_s, ground.network.slice_bytes = 100_000, 4096
        behind = msgspec.structs.replace(embedded, port=ground.network.port)
        first = asyncio.create_task(connect_once(behind))
        part = Path(embedded.root) / "releases"
        await asyncio.to_thread(ground.workshop.wait_for, part.is_dir)
        ground.network.reset()
        with pytest.raises(ConnectionFailed):
            await first
        ground.network.bytes_per_s = None
        assert await connect_once(behind) == deploy.release().sha256


async def test_two_consoles_that_deploy_at_once_leave_one_release(embedded: HostConfig) -> None:
    found = await asyncio.gather(*(connect_once(embedded) for _ in range(3)))
    assert set(found) == {deploy.release().sha256}
    assert [path.name for path in (Path(embedded.root) / "releases").iterdir()] == [deploy.release().sha256]


NOISY = """
echo 'Welcome! \xfe\xff' $(head -c 80 /dev/urandom | tr -d '\\n')
printf '\\033]0;title\\007@@ROOST-READY is what I never say\\n'
echo complaint >&2
"""


@pytest.fixture
def noisy_home(tmp_path: Path) -> Path:
    """A home whose start-up files, of every shell, print bytes that nobody asked for."""
    home = tmp_path / "home"
    for name in (".bashrc", ".profile", ".config/fish/config.fish"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(NOISY.encode("latin-1"))
    return home


@pytest.mark.parametrize("shell", ["bash", "dash", "fish"])
async def test_a_noisy_login_shell_is_listened_through(
    openssh: OpenSSH, noisy_home: Path, tmp_path: Path, shell: str
) -> None:
    banner = tmp_path / "banner"
    banner.write_bytes(b"\x1b[2J no trespassing\n" * 3)
    openssh.restart_with(f"Banner {banner}", shell=shell, home=noisy_home)
    openssh.remember()
    assert await connect_once(openssh.config(tmp_path / "root")) == deploy.release().sha256


async def test_an_account_that_may_run_nothing_is_named(openssh: OpenSSH, noisy_home: Path, tmp_path: Path) -> None:
    openssh.restart_with(shell="nologin", home=noisy_home)
    openssh.remember()
    with pytest.raises(ConnectionFailed, match="not available") as refused:
        await connect_once(openssh.config(tmp_path / "root"))
    assert "ssh" in (refused.value.info.hint or "")


@contextlib.contextmanager
def mounted(directory: Path, options: str) -> Iterator[Path]:
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


async def test_a_root_that_executes_nothing_is_enough(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    with mounted(tmp_path / "noexec", "noexec,size=64m") as mount:
        assert await connect_once(openssh.config(mount / "root")) == deploy.release().sha256


@pytest.mark.parametrize(("options", "words"), [("ro", "Read-only"), ("size=64k", "No space left")])
async def test_a_root_that_cannot_be_written_is_named(
    openssh: OpenSSH, tmp_path: Path, options: str, words: str
) -> None:
    openssh.remember()
    with (
        mounted(tmp_path / "bad", options) as mount,
        pytest.raises(ConnectionFailed, match=f"could not be set up.*{words}"),
    ):
        await connect_once(openssh.config(mount / "root"))
