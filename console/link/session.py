"""One SSH connection to a host, resolved through OpenSSH's own configuration, with every failure in plain words."""

import asyncio
import socket

import asyncssh

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed
from console.link import host_keys
from console.link.private_keys import read_plain, unlock
from console.link.target import Target, resolve

CONNECT_TIMEOUT_S = 15.0
LOGIN_TIMEOUT_S = 30.0
KEEPALIVE_INTERVAL_S = 15.0
KEEPALIVE_COUNT = 3

_FAILURES = (OSError, asyncssh.Error, TimeoutError)


class Witness(asyncssh.SSHClient):
    """Remembers why a connection ended, and ends those that it went through."""

    def __init__(self) -> None:
        self.lost: Exception | None = None
        self.passed: list[asyncssh.SSHClientConnection] = []
        """The connections that this one goes through; they end with it."""

    def connection_lost(self, exc: Exception | None) -> None:
        """None stands for an end of the stream."""
        self.lost = exc
        for jump in reversed(self.passed):
            jump.abort()


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


async def connect(host: HostConfig) -> asyncssh.SSHClientConnection:
    """An authenticated connection, hop by hop; raises ConnectionFailed (not retryable for logins and host keys), ConfirmationNeeded."""
    target = await resolve(host)
    passed: list[asyncssh.SSHClientConnection] = []
    try:
        for jump in target.jumps:
            passed.append(await _connect_to(await resolve(jump), passed[-1] if passed else None))
        connection = await _connect_to(target, passed[-1] if passed else None)
    except BaseException:  # a cancelled task as well: the connection would stay open
        for connection in reversed(passed):
            connection.abort()
        raise
    witness_of(connection).passed = passed
    return connection


async def trust(host: HostConfig, fingerprint: str) -> str:
    """Accept the key with this fingerprint for the first hop of the way to `host` whose key is unknown; whose it was.

    Raises ConnectionFailed when that hop shows another key, or when none is unknown.
    """
    target = await resolve(host)
    passed: list[asyncssh.SSHClientConnection] = []
    try:
        for step in [*[await resolve(jump) for jump in target.jumps], target]:
            through = passed[-1] if passed else None
            if not host_keys.is_known(step.key_name, step.known_hosts_files) or step is target:
                key = await host_keys.fetch(step.endpoint, through, step.proxy_command)
                host_keys.accept(step.name, step.key_name, key, fingerprint, step.known_hosts_files)
                return step.where
            passed.append(await _connect_to(step, through))
    finally:
        for jump in reversed(passed):
            jump.abort()
    raise AssertionError("the target is the last step")


async def _connect_to(target: Target, through: asyncssh.SSHClientConnection | None) -> asyncssh.SSHClientConnection:
    """Connect to one hop; where plain keys and the agent are refused, encrypted keys are unlocked and tried."""
    await host_keys.require_known(
        target.name, target.key_name, target.endpoint, target.known_hosts_files, through, target.proxy_command
    )
    keys = {path: read_plain(path) for path in target.identity_files}
    locked = [path for path, key in keys.items() if key is None]
    plain = [key for key in keys.values() if key is not None]
    if plain or target.agent_path or not locked:
        try:
            return await _log_in(target, plain, through)
        except asyncssh.PermissionDenied as error:
            if not locked:
                raise explain(error, target) from error
        except _FAILURES as error:
            raise explain(error, target) from error
    unlocked = [await unlock(path) for path in locked]
    try:
        return await _log_in(target, unlocked, through)
    except _FAILURES as error:
        raise explain(error, target) from error


async def _log_in(
    target: Target, keys: list[asyncssh.SSHKey], through: asyncssh.SSHClientConnection | None
) -> asyncssh.SSHClientConnection:
    asyncssh.set_debug_level(1)  # a higher one writes what is sent, tokens included, into the log
    async with asyncio.timeout(CONNECT_TIMEOUT_S + LOGIN_TIMEOUT_S):
        connection, witness = await asyncssh.create_connection(
            Witness,
            target.endpoint.address,
            target.endpoint.port,
            username=target.user,
            client_keys=keys or None,
            client_certs=target.certificate_files,
            agent_path=target.agent_path,
            tunnel=through,
            proxy_command=target.proxy_command if through is None else None,
            host_key_alias=target.key_name.address if target.key_name != target.endpoint else None,
            known_hosts=host_keys.known_hosts(target.known_hosts_files),
            config=None,
            connect_timeout=CONNECT_TIMEOUT_S,
            login_timeout=LOGIN_TIMEOUT_S,
            keepalive_interval=KEEPALIVE_INTERVAL_S,
            keepalive_count_max=KEEPALIVE_COUNT,
            encoding=None,
        )
    connection.set_extra_info(witness=witness)
    return connection


async def login_of(host: HostConfig) -> str:
    """Who logs in where, in words."""
    target = await resolve(host)
    through = f" through {', '.join(jump.name for jump in target.jumps)}" if target.jumps else ""
    return f"{target.user}@{target.endpoint.address}:{target.endpoint.port}{through}"


def explain(error: Exception, target: Target) -> ConnectionFailed:  # noqa: PLR0911 - one case a failure
    """The failure of a connection in words, with what to do next and whether trying again can help."""
    where = target.where
    match error:
        case asyncssh.HostKeyNotVerifiable() if "revoked" in error.reason:
            return ConnectionFailed(
                f"the host key of {where} was revoked (@revoked in known_hosts): nothing is sent to it",
                hint="the host needs a new key; ask who runs it",
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
                f"{where} refused the login; tried {tried}{' and the SSH agent' if target.agent_path else ''}",
                hint="set user and identity_file of the host in roost.toml, or add the key to the agent",
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
