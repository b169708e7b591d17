"""Attempts to connect that fail half way: what time can heal is tried again, and in words."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed
from console.link import target
from console.link.channel import open_channel
from console.link.host_keys import Endpoint, remember


class CutsAtTheSession(asyncssh.SSHServer):
    """Accepts every login and breaks the connection when a session is asked for."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> bool:
        self._connection.abort()
        return False


@pytest.fixture
async def cutting_host(embedded_data: Path, tmp_path: Path) -> AsyncIterator[HostConfig]:
    assert embedded_data, "known keys go to a directory of the test"
    key = asyncssh.generate_private_key("ssh-ed25519")
    identity = tmp_path / "identity"
    key.write_private_key(identity)
    async with asyncssh.listen("127.0.0.1", 0, server_factory=CutsAtTheSession, server_host_keys=[key]) as server:
        port = server.get_port()
        remember(Endpoint("127.0.0.1", port), key)
        yield HostConfig(
            name="lab", address="127.0.0.1", port=port, user="ann", identity_file=str(identity), root=str(tmp_path)
        )


async def test_a_connection_cut_while_its_session_opens_is_tried_again(cutting_host: HostConfig) -> None:
    with pytest.raises(ConnectionFailed, match="before a command could run") as failed:
        await open_channel(cutting_host)
    assert failed.value.info.retryable


async def test_a_configuration_of_openssh_that_waits_for_the_network_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 60\n")
    ssh.chmod(0o755)
    monkeypatch.setattr(target.shutil, "which", lambda name: str(ssh))
    monkeypatch.setattr(target, "RESOLVE_TIMEOUT_S", 0.2)
    with pytest.raises(ConnectionFailed, match="was not read within") as failed:
        await target.resolve(HostConfig(name="lab", address="lab.example"))
    assert failed.value.info.retryable
