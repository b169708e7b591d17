"""A host is looked at before anything is on it, and given an environment when it lacks one."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import msgspec
import pytest

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError
from console.link import prepare
from console.link.check import check_host
from console.link.client import HostLink
from console.state.host_check import REQUIRED
from remote.protocol.errors import ErrorCode
from tests.link.servers import OpenSSH


@pytest.fixture
def bare_host(openssh: OpenSSH, tmp_path: Path) -> HostConfig:
    """A host whose only configured Python has nothing installed."""
    venv.create(tmp_path / "bare", with_pip=False)
    openssh.remember()
    return msgspec.structs.replace(openssh.config(tmp_path / "root"), python=str(tmp_path / "bare/bin/python"))


async def test_a_host_that_has_everything_is_usable(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    check = await check_host(openssh.config(tmp_path / "root"))
    assert check.usable
    assert check.python == sys.executable
    chosen = next(python for python in check.probe.pythons if python.path == check.python)
    assert chosen.version == sys.version.split()[0]
    assert chosen.lacks() == []
    assert check.probe.machine.cores == len(os.sched_getaffinity(0))
    assert all(check.probe.root.abilities.values())
    assert not (tmp_path / "root").exists(), "a look changes nothing"
    assert list(tmp_path.glob(".roost-check-*")) == []


async def test_what_each_python_lacks_is_listed(bare_host: HostConfig) -> None:
    check = await check_host(bare_host)
    bare = next(python for python in check.probe.pythons if python.path == bare_host.python)
    assert bare.lacks() == list(REQUIRED)


async def test_a_host_without_python_is_named(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    host = msgspec.structs.replace(openssh.config(tmp_path / "root"), python="/nowhere/python")
    with pytest.raises(ConnectionFailed, match="no Python 3 could be run"):
        await check_host(host)


async def test_an_environment_is_planned_with_the_python_that_has_torch(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    plan = prepare.plan_environment(await check_host(openssh.config(tmp_path / "root")))
    assert (plan.python, plan.borrow_from) == (sys.executable, sys.executable)
    assert [requirement.split(">")[0] for requirement in plan.requirements] == sorted(REQUIRED)
    assert plan.commands()[0] == f"{sys.executable} -m venv {tmp_path}/root/env"


async def test_nothing_half_made_is_left_of_an_environment_that_failed(bare_host: HostConfig, tmp_path: Path) -> None:
    plan = prepare.plan_environment(await check_host(bare_host))
    impossible = msgspec.structs.replace(plan, requirements=["no-such-package-of-anybody==0.0.1"], borrow_from=None)
    told: list[str] = []
    with pytest.raises(ConsoleError) as failed:
        await prepare.build_environment(bare_host, impossible, told.append)
    assert failed.value.info.code == ErrorCode.FAILED
    assert list((tmp_path / "root").iterdir()) == []
    assert any("no-such-package-of-anybody" in line for line in told)


@pytest.fixture
def package_index(tmp_path: Path) -> None:
    """Skips where pip can download nothing."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path / "trial", "msgspec"]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no package index can be reached")


@pytest.mark.slow
async def test_a_bare_host_is_prepared_once_and_then_used(
    bare_host: HostConfig, package_index: None, tmp_path: Path
) -> None:
    plan = prepare.plan_environment(await check_host(bare_host))
    plan = msgspec.structs.replace(plan, python=str(tmp_path / "bare/bin/python"), borrow_from=None)
    assert await prepare.build_environment(bare_host, plan, print)
    record = json.loads((tmp_path / "root/env/roost-env.json").read_bytes())
    assert record["requirements"] == plan.requirements
    assert not await prepare.build_environment(bare_host, plan, print), "the second time nothing is done"
    async with HostLink(msgspec.structs.replace(bare_host, python=None), actor="test") as link:
        assert link.state.welcome.python == str(tmp_path / "root/env/bin/python")


@pytest.mark.slow
async def test_packages_are_brought_to_a_host_without_an_index(
    bare_host: HostConfig, package_index: None, tmp_path: Path
) -> None:
    plan = prepare.plan_environment(await check_host(bare_host))
    plan = msgspec.structs.replace(plan, python=str(tmp_path / "bare/bin/python"), borrow_from=None)
    offline = tmp_path / "offline-python"
    offline.write_text(
        f"#!/bin/sh\nexport PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=http://127.0.0.1:9 PIP_RETRIES=0\n"
        f'exec {tmp_path}/bare/bin/python "$@"\n'
    )
    offline.chmod(0o755)
    told: list[str] = []
    host = msgspec.structs.replace(bare_host, python=str(offline))
    assert await prepare.build_environment(host, plan, told.append)
    assert any("brought over the connection" in line for line in told)
    assert (tmp_path / "root/env/bin/python").exists()
