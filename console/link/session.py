"""One SSH connection to a host, resolved through OpenSSH's own configuration, with every failure in plain words."""

import asyncio
import getpass
import os
import shutil
import socket
from pathlib import Path
from typing import NamedTuple

import asyncssh

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed
from console.link import host_keys
from console.link.host_keys import SSH_PORT, Endpoint

CONNECT_TIMEOUT_S = 15.0
LOGIN_TIMEOUT_S = 30.0
KEEPALIVE_INTERVAL_S = 15.0
KEEPALIVE_COUNT = 3
RESOLVE_TIMEOUT_S = 10.0


class Target(NamedTuple):
    """A host after resolution: endpoint, user, key files, and the hosts to jump through (`ProxyJump`, first hop first)."""

    endpoint: Endpoint
    user: str
    identity_files: list[str]
    jump: str | None
    agent: bool


class Witness(asyncssh.SSHClient):
    """Remembers why a connection ended."""

    def __init__(self) -> None:
        self.lost: Exception | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """None stands for an end of the stream."""
        self.lost = exc


def witness_of(connection: asyncssh.SSHClientConnection) -> Witness:
    """The witness that `connect` gave to the connection."""
    return connection.get_extra_info("witness")


def explain_end(error: Exception | None) -> str:  # noqa: PLR0911 - one case an end
    """Why a connection that worked has ended, in words."""
    match error:
        case None:
            return "the other side closed the connection"
        case ConnectionResetError() | BrokenPipeError():
            return "the connection was reset on its way"
        case asyncssh.MACError():
            return "data arrived damaged, so the connection was dropped"
        case asyncssh.ConnectionLost() if "keepalive" in error.reason:
            return "the host does not answer any more"
        case asyncssh.ConnectionLost():
            return "the other side closed the connection"
        case asyncssh.DisconnectError():
            return f"the connection ended: {error.reason}"
        case _:
            return f"the connection broke: {error}"


async def resolve(host: HostConfig) -> Target:
    """What `ssh -G` says of the host, overridden by roost.toml; without an ssh binary roost.toml alone."""
    # A port and a key of its own (the embedded host) leave nothing for OpenSSH's configuration to say.
    settings = {} if host.port and host.user and host.identity_file else await _openssh_settings(host.address)
    identities = [host.identity_file] if host.identity_file else settings.get("identityfile", [])
    jump = settings.get("proxyjump", ["none"])[0]
    return Target(
        endpoint=Endpoint(
            settings.get("hostname", [host.address])[0],
            host.port or int(settings.get("port", [str(SSH_PORT)])[0]),
        ),
        user=host.user or settings.get("user", [getpass.getuser()])[0],
        identity_files=[path for name in identities if (path := str(Path(name).expanduser())) and Path(path).is_file()],
        jump=None if jump == "none" else jump,
        agent=host.identity_file is None,
    )


async def _openssh_settings(address: str) -> dict[str, list[str]]:
    ssh = shutil.which("ssh")
    if ssh is None:
        return {}
    process = await asyncio.create_subprocess_exec(
        ssh,
        "-G",
        "--",
        address,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            out, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ConnectionFailed(
            f"OpenSSH's configuration for {address} was not read within {RESOLVE_TIMEOUT_S:g} s",
            hint=f"a `Match exec` or `CanonicalizeHostname` in it may wait for the network; try `ssh -G {address}`",
        ) from None
    if process.returncode != 0:
        raise ConnectionFailed(
            f"OpenSSH's configuration for {address} cannot be read: {complaint.decode(errors='replace').strip()}",
            hint=f"try `ssh -G {address}`",
            retryable=False,
        )
    settings: dict[str, list[str]] = {}
    for line in out.decode(errors="replace").splitlines():
        key, _, value = line.partition(" ")
        settings.setdefault(key, []).append(value)
    return settings


async def connect(host: HostConfig) -> asyncssh.SSHClientConnection:
    """An authenticated connection; raises ConnectionFailed (not retryable for authentication and host keys)."""
    target = await resolve(host)
    if target.jump is None:
        await host_keys.require_known(host, target.endpoint)
    try:
        asyncssh.set_debug_level(1)  # a higher one writes what is sent, tokens included, into the log
        async with asyncio.timeout(CONNECT_TIMEOUT_S + LOGIN_TIMEOUT_S):
            connection, witness = await asyncssh.create_connection(
                Witness,
                target.endpoint.address,
                target.endpoint.port,
                username=target.user,
                client_keys=target.identity_files,
                ignore_encrypted=True,
                agent_path=os.environ.get("SSH_AUTH_SOCK") if target.agent else None,
                tunnel=target.jump,
                known_hosts=host_keys.known_hosts(),
                config=None,
                connect_timeout=CONNECT_TIMEOUT_S,
                login_timeout=LOGIN_TIMEOUT_S,
                keepalive_interval=KEEPALIVE_INTERVAL_S,
                keepalive_count_max=KEEPALIVE_COUNT,
                encoding=None,
            )
            connection.set_extra_info(witness=witness)
            return connection
    except (OSError, asyncssh.Error, asyncssh.KeyImportError, TimeoutError) as error:
        raise explain(error, host, target) from error


async def login_of(host: HostConfig) -> str:
    """Who logs in where, in words."""
    target = await resolve(host)
    through = "" if target.jump is None else f" through {target.jump}"
    return f"{target.user}@{target.endpoint.address}:{target.endpoint.port}{through}"


def explain(error: Exception, host: HostConfig, target: Target) -> ConnectionFailed:  # noqa: PLR0911 - one case a failure
    """The failure of a connection in words, with what to do next and whether trying again can help."""
    where = f"{host.name} ({target.user}@{target.endpoint.address}:{target.endpoint.port})"
    match error:
        case asyncssh.HostKeyNotVerifiable() if target.jump is not None:
            return ConnectionFailed(
                f"the host key of {where} or of its jump host {target.jump} is unknown or changed: {error.reason}",
                hint="connect once with `ssh`, compare the fingerprints there, then try again",
                retryable=False,
            )
        case asyncssh.HostKeyNotVerifiable():
            return ConnectionFailed(
                f"the host key of {where} is not the one that was accepted before: {error.reason}",
                hint="the host was reinstalled, or somebody is in between; find out which before you accept the new key",
                retryable=False,
            )
        case asyncssh.PermissionDenied():
            tried = ", ".join(target.identity_files) or "no key file"
            return ConnectionFailed(
                f"{where} refused the login; tried {tried}{' and the SSH agent' if target.agent else ''}",
                hint="set user and identity_file of the host in roost.toml, or add the key to the agent",
                retryable=False,
            )
        case asyncssh.KeyImportError():
            return ConnectionFailed(
                f"a key file for {where} cannot be read: {error}",
                hint="look at identity_file in roost.toml and IdentityFile in ~/.ssh/config",
                retryable=False,
            )
        case socket.gaierror():
            return ConnectionFailed(
                f"the name of {where} cannot be resolved: {error.strerror}", hint="check the address"
            )
        case ConnectionRefusedError():
            return ConnectionFailed(f"{where} refuses connections", hint="is the SSH server running on that port?")
        case ConnectionResetError() | asyncssh.ConnectionLost():
            return ConnectionFailed(
                f"{where} dropped the connection before the login ({error})",
                hint="too many logins at once (MaxStartups), or a penalty after failed ones: wait a little",
            )
        case TimeoutError():
            return ConnectionFailed(f"{where} did not answer in time", hint="is the host up and reachable from here?")
        case _:
            return ConnectionFailed(f"the connection to {where} failed: {error}", hint=None)
