"""What `ssh -G` says becomes a target; a stand-in for the ssh binary prints what OpenSSH would."""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from console.config.hosts import HostConfig
from console.errors import UsageError
from console.link import target
from console.link.client import HostLink
from console.link.host_keys import Endpoint, remember
from remote.protocol.requests import Ping
from tests.link.servers import OpenSSH

Say = Callable[[str], None]


@pytest.fixture
def openssh_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Makes `ssh -G` print these settings for every host."""
    ssh = tmp_path / "ssh"

    def say(settings: str) -> None:
        (tmp_path / "settings").write_text(settings)
        ssh.write_text(f"#!/bin/sh\nexec cat {tmp_path}/settings\n")
        ssh.chmod(0o755)

    monkeypatch.setattr(target.shutil, "which", lambda name: str(ssh))
    return say


async def test_the_settings_of_openssh_are_taken(openssh_says: Say, tmp_path: Path) -> None:
    for name in ("key", "key-cert.pub", "known"):
        (tmp_path / name).touch()
    openssh_says(
        f"hostname 10.0.0.7\nport 2222\nuser ann\nhostkeyalias lab-42\nproxyjump ben@bastion:2200,[::1]:22\n"
        f"identityfile {tmp_path}/key\nidentityfile {tmp_path}/missing\ncertificatefile {tmp_path}/key-cert.pub\n"
        f"userknownhostsfile {tmp_path}/known {tmp_path}/none\nidentityagent {tmp_path}/agent\nproxycommand none\n"
    )
    found = await target.resolve(HostConfig(name="lab", address="lab"))
    assert found.endpoint == Endpoint("10.0.0.7", 2222)
    assert found.key_name.address == "lab-42"
    assert (found.user, found.identity_files) == ("ann", [f"{tmp_path}/key"])
    assert found.certificate_files == [f"{tmp_path}/key-cert.pub"]
    assert found.known_hosts_files == [tmp_path / "known"]
    assert found.agent_path == f"{tmp_path}/agent"
    assert found.proxy_command is None
    assert [(hop.user, hop.address, hop.port) for hop in found.jumps] == [("ben", "bastion", 2200), (None, "::1", 22)]


async def test_roost_toml_overrides(openssh_says: Say, tmp_path: Path) -> None:
    (tmp_path / "own").touch()
    openssh_says("hostname 10.0.0.7\nport 2222\nuser ann\nproxyjump bastion\nidentityfile ~/.ssh/other\n")
    host = HostConfig(
        name="lab", address="lab", port=22, user="cem", identity_file=str(tmp_path / "own"), jump="ops@gate:23"
    )
    found = await target.resolve(msgspec.structs.replace(host, port=None))
    assert (found.endpoint, found.user) == (Endpoint("10.0.0.7", 2222), "cem")
    assert (found.identity_files, found.agent_path) == ([str(tmp_path / "own")], None)
    (hop,) = found.jumps
    assert (hop.user, hop.address, hop.port, hop.identity_file) == ("ops", "gate", 23, str(tmp_path / "own"))


async def test_no_known_hosts_file_of_openssh_switches_checking_off(openssh_says: Say) -> None:
    openssh_says("hostname 10.0.0.7\nport 22\nuser ann\nuserknownhostsfile none\nstricthostkeychecking false\n")
    assert (await target.resolve(HostConfig(name="lab", address="lab"))).known_hosts_files == []


async def test_a_key_file_of_roost_toml_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="/nowhere/key"):
        await target.resolve(HostConfig(name="lab", address="lab", identity_file="/nowhere/key"))


RELAY = """
import socket, sys, threading
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def down():
    while block := peer.recv(65536):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
threading.Thread(target=down, daemon=True).start()
while block := sys.stdin.buffer.raw.read(65536):
    peer.sendall(block)
"""


async def test_a_proxy_command_is_run_with_the_host_and_the_port(
    openssh: OpenSSH, openssh_says: Say, tmp_path: Path
) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    openssh.remember()
    remember(Endpoint("lab.invalid", openssh.port), openssh.host_key)
    openssh_says(
        f"hostname lab.invalid\nport {openssh.port}\nuser {openssh.config(tmp_path).user}\n"
        f"identityfile {openssh.client_key}\nproxycommand {sys.executable} {relay} 127.0.0.1 %p\n"
    )
    host = HostConfig(name="lab", address="lab", root=str(tmp_path / "root"), python=sys.executable)
    async with HostLink(host, actor="test") as link:
        await link.call(Ping())


def test_percent_signs_of_a_proxy_command() -> None:
    assert target._expand("nc %h %p %% %r", Endpoint("a", 7), "u") == "nc a 7 % u"
    assert target._expand("%%h", Endpoint("a", 7), "u") == "%h"
