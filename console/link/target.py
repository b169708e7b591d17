"""Where a host is and how to log in there, as OpenSSH's own configuration (`ssh -G`) and roost.toml say."""

import asyncio
import getpass
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, UsageError
from console.link.host_keys import SSH_PORT, Endpoint

RESOLVE_TIMEOUT_S = 10.0


class Target(NamedTuple):
    """A host after resolution. `key_name` stands for it in known_hosts; `jumps` are hosts to go through, the first hop first."""

    name: str
    endpoint: Endpoint
    key_name: Endpoint
    user: str
    identity_files: list[str]
    certificate_files: list[str]
    known_hosts_files: list[Path]
    agent_path: str | None
    jumps: list[HostConfig]
    proxy_command: str | None

    @property
    def where(self) -> str:
        """The host in words, for messages."""
        return f"{self.name} ({self.user}@{self.endpoint.address}:{self.endpoint.port})"


async def resolve(host: HostConfig) -> Target:
    """What `ssh -G` says of the host, overridden by roost.toml; without an ssh binary roost.toml alone.

    Raises UsageError for a key file of roost.toml that is not there, ConnectionFailed when `ssh -G` fails.
    """
    if host.identity_file and not Path(host.identity_file).expanduser().is_file():
        raise UsageError(
            f"the identity_file of {host.name} is not there: {host.identity_file}", hint="mend it in roost.toml"
        )
    # A port and a key of its own (the embedded host) leave nothing for OpenSSH's configuration to say.
    settings = {} if host.port and host.user and host.identity_file else await _openssh_settings(host.address)
    endpoint = Endpoint(
        _first(settings, "hostname") or host.address, host.port or int(_first(settings, "port") or SSH_PORT)
    )
    user = host.user or _first(settings, "user") or getpass.getuser()
    alias, jump, command = (
        _first(settings, "hostkeyalias"),
        _first(settings, "proxyjump"),
        _first(settings, "proxycommand"),
    )
    return Target(
        name=host.name,
        endpoint=endpoint,
        key_name=Endpoint(alias, SSH_PORT) if alias else endpoint,
        user=user,
        identity_files=_files([host.identity_file] if host.identity_file else settings.get("identityfile", [])),
        certificate_files=_files(settings.get("certificatefile", [])),
        known_hosts_files=[Path(path) for path in _files(" ".join(settings.get("userknownhostsfile", [])).split())],
        agent_path=None if host.identity_file else _agent(settings),
        jumps=[
            _hop(text, host.identity_file if host.jump else None)
            for text in (host.jump or jump or "").split(",")
            if text
        ],
        proxy_command=None if command is None else _expand(command, endpoint, user),
    )


def _hop(text: str, identity_file: str | None) -> HostConfig:
    """A host to go through, written `[user@]host[:port]` or as an ssh URI."""
    user, _, place = text.strip().removeprefix("ssh://").rstrip("/").rpartition("@")
    address, separator, port = place.rpartition(":")
    if not separator or not port.isdigit():
        address, port = place, ""
    return HostConfig(
        name=text.strip(),
        address=address.strip("[]"),
        port=int(port) if port else None,
        user=user or None,
        identity_file=identity_file,
    )


def _first(settings: dict[str, list[str]], key: str) -> str | None:
    value = settings.get(key, ["none"])[0]
    return None if value == "none" else value


def _files(names: list[str]) -> list[str]:
    paths = [Path(name).expanduser() for name in names]
    return [str(path) for path in paths if path.is_file()]


def _agent(settings: dict[str, list[str]]) -> str | None:
    configured = settings.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    if configured == "none":
        return None
    return os.environ.get("SSH_AUTH_SOCK") if configured == "SSH_AUTH_SOCK" else str(Path(configured).expanduser())


def _expand(command: str, endpoint: Endpoint, user: str) -> str:
    """The tokens of ssh_config(5) that ProxyCommand accepts."""
    tokens = {"%h": endpoint.address, "%p": str(endpoint.port), "%r": user, "%n": endpoint.address, "%%": "%"}
    pieces = command.split("%%")
    for token, value in tokens.items():
        pieces = [piece.replace(token, value) for piece in pieces]
    return "%".join(pieces)


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
