"""Where the socket of a host's background session is, and whose it must be.

Its name stands for everything that the session was made of: a console of another release, another entry of roost.toml or another agent looks
for another socket, and the old session ends when it is idle.
"""

import fcntl
import hashlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec

from console.config.hosts import HostConfig

_ENVIRONMENT = ("HOME", "USER", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME")
"""What besides the configuration decides who logs in where, and which keys are believed."""

_LONGEST_PATH = 100
"""The system takes 107 bytes."""


def socket_path(host: HostConfig) -> Path | None:
    """The socket of the session with `host`; None where there is no private directory for it (XDG_RUNTIME_DIR), or the host is an
    allocation, which one must find anew each time.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if not runtime or host.slurm is not None:
        return None
    directory = Path(runtime) / "roost"
    path = directory / f"{_fingerprint(host)}.sock"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return path if is_own(directory, stat.S_ISDIR) and len(os.fsencode(path)) <= _LONGEST_PATH else None


def is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether `path` is of a kind (`stat.S_ISSOCK`), no link, this user's, and nobody else's to use."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return is_kind(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077


def is_own_peer(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end of a socket (SO_PEERCRED)."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user == os.getuid()


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether this process has the session's lock; it has it for as long as this lasts, and the system takes it from one that died."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _fingerprint(host: HostConfig) -> str:
    made_of = [msgspec.to_builtins(host), [os.environ.get(name) for name in _ENVIRONMENT], *_code()]
    return hashlib.sha256(msgspec.json.encode(made_of)).hexdigest()[:24]


def _code() -> Iterator[list[tuple[str, int, int]]]:
    """Every file of this release, by its size and time: what is changed is another release."""
    for package in ("console", "remote"):
        specification = find_spec(package)
        assert specification is not None, "they ship together"
        home = Path(next(iter(specification.submodule_search_locations or [])))
        yield sorted(
            (str(path), status.st_size, status.st_mtime_ns) for path in home.rglob("*.py") for status in [path.stat()]
        )
