"""Host keys, strictly: an unknown key is shown and asked for once, a changed or revoked one is a hard stop.

asyncssh calls `validate_host_public_key` for unknown, changed and revoked keys alike, so the known hosts are matched here
first and asyncssh is only given keys that were matched; its own checking is never switched off.
"""

import asyncio
import contextlib
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import asyncssh

from console.config.locations import config_directory
from console.errors import ConnectionFailed, UnknownHostKey, UsageError

FETCH_TIMEOUT_S = 15.0
SSH_PORT = 22
_OF_ALL_USERS = Path("/etc/ssh/ssh_known_hosts")


class Endpoint(NamedTuple):
    """Where the TCP connection goes."""

    address: str
    port: int


def known_hosts_file() -> Path:
    """Roost's own store of accepted keys."""
    return config_directory() / "known_hosts"


def _pattern(endpoint: Endpoint) -> str:
    return endpoint.address if endpoint.port == SSH_PORT else f"[{endpoint.address}]:{endpoint.port}"


def known_hosts(more: list[Path]) -> asyncssh.SSHKnownHosts:
    """The keys of Roost's store, of the user's `~/.ssh/known_hosts`, and of what his configuration names besides, for asyncssh."""
    files = list(dict.fromkeys([known_hosts_file(), Path.home() / ".ssh/known_hosts", _OF_ALL_USERS, *more]))
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())
    try:
        return asyncssh.import_known_hosts(text + "\n")
    except ValueError as error:
        raise UsageError(
            f"a known_hosts file cannot be read: {error}", hint=f"look at {' and '.join(map(str, files))}"
        ) from error


def believed(endpoint: Endpoint, more: list[Path]) -> list[list[str]]:
    """What is on record of a host, to be held against what was: keys, authorities, revoked keys, and certificates and their subjects."""
    found = known_hosts(more).match(endpoint.address, _ip_of(endpoint.address), endpoint.port)
    return [sorted(_identity(each) for each in group) for group in found]


def _identity(entry: object) -> str:
    data = getattr(entry, "public_data", None) or getattr(entry, "data", None)
    return data.hex() if isinstance(data, bytes) else str(entry)


def is_known(endpoint: Endpoint, more: list[Path]) -> bool:
    """Whether anything is on record of a host's key, be it that it was revoked: then nobody may be asked to accept another."""
    trusted, authorities, revoked, *_ = known_hosts(more).match(
        endpoint.address, _ip_of(endpoint.address), endpoint.port
    )
    return bool(trusted or authorities or revoked)


async def require_known(
    name: str,
    key_name: Endpoint,
    endpoint: Endpoint,
    more: list[Path],
    through: asyncssh.SSHClientConnection | None,
    proxy_command: str | None,
) -> None:
    """Refuse a host none of whose keys is known; raises UnknownHostKey that shows its fingerprint."""
    if is_known(key_name, more):
        return
    key = await fetch(endpoint, through, proxy_command)
    raise UnknownHostKey(name, _pattern(key_name), key.get_fingerprint(), key.get_algorithm())


def _ip_of(address: str) -> str:
    """The address if it is a number: asyncssh takes no name in its place."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(address))
    return ""


def accept(name: str, endpoint: Endpoint, key: asyncssh.SSHKey, fingerprint: str, more: list[Path]) -> None:
    """Remember a host's key if it has `fingerprint`.

    Raises ConnectionFailed when it has another, was revoked, or when any known_hosts file trusts the host by other keys.
    """
    if key.get_fingerprint() != fingerprint:
        raise ConnectionFailed(
            f"the host key of {name} is {key.get_fingerprint()}, not {fingerprint}; nothing was accepted",
            hint="somebody may be between you and the host",
            retryable=False,
        )
    trusted, _, revoked, *_ = known_hosts(more).match(endpoint.address, _ip_of(endpoint.address), endpoint.port)
    if _is_among(key, revoked):
        raise ConnectionFailed(
            f"the host key of {name} was revoked (@revoked in known_hosts); nothing was accepted",
            hint="the host needs a new key; ask who runs it",
            retryable=False,
        )
    if trusted and not _is_among(key, trusted):
        raise ConnectionFailed(
            f"{name} was trusted with another key before; nothing was accepted",
            hint=f"if the host was reinstalled, remove its line from {known_hosts_file()} or ~/.ssh/known_hosts first",
            retryable=False,
        )
    remember(endpoint, key)


def _is_among(key: asyncssh.SSHKey, keys: Sequence[asyncssh.SSHKey]) -> bool:
    return any(one.public_data == key.public_data for one in keys)


def remember(endpoint: Endpoint, key: asyncssh.SSHKey) -> None:
    """Add a key to Roost's store in place of what the store says of the same endpoint."""
    path = known_hosts_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    pattern = _pattern(endpoint)
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if path.exists() else []
    kept = [line for line in lines if line.split(" ", 1)[0] != pattern]
    kept.append(f"{pattern} {key.export_public_key('openssh').decode().strip()}")
    temporary = path.with_name(f".known_hosts.{os.getpid()}")
    temporary.write_text("\n".join(kept) + "\n", encoding="utf-8", errors="surrogateescape")
    temporary.chmod(0o600)
    temporary.replace(path)


async def fetch(
    endpoint: Endpoint,
    through: asyncssh.SSHClientConnection | None,
    proxy_command: str | None,
    algorithm: str | None = None,
) -> asyncssh.SSHKey:
    """The key that a host shows, of this `algorithm` if one is named, believed by nobody yet; raises ConnectionFailed."""
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            key = await asyncssh.get_server_host_key(
                endpoint.address,
                endpoint.port,
                tunnel=through,
                proxy_command=proxy_command if through is None else None,
                config=None,
                server_host_key_algs=[algorithm] if algorithm else (),
            )
    except (OSError, asyncssh.Error, TimeoutError) as error:
        raise ConnectionFailed(
            f"cannot reach {_pattern(endpoint)}: {error or 'no answer in time'}",
            hint="is the address right and the host up?",
        ) from error
    if key is None:
        raise ConnectionFailed(f"{_pattern(endpoint)} shows no host key", retryable=False)
    return key
