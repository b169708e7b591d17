"""What lies in a directory tree that is to be copied, and what in it cannot be."""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from remote.errors import Precondition

Signature = tuple[int, int, int, int]
"""Device, inode, size and modification time in nanoseconds: what changes when somebody writes."""


class ScannedFile(NamedTuple):
    """A regular file by its path below the tree; bytes that are no UTF-8 are in `name` as surrogates."""

    name: str
    signature: Signature
    mode: int
    is_sparse: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return self.signature[2]


class Tree(NamedTuple):
    """Directories from the top down, files by name with the manifest last, and links with their targets."""

    directories: list[str]
    files: list[ScannedFile]
    links: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes of all files; a second name of a file counts once."""
        return sum({file.signature[:2]: file.size for file in self.files}.values())

    @property
    def identity(self) -> str:
        """A hash of names, sizes and times: the same as long as nobody wrote there."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def scan(root: Path, *, last: str) -> Tree:
    """The tree below `root`, whose file `last` comes last.

    Raises Precondition that lists what cannot be copied: links that leave the tree, sockets, pipes and devices.
    """
    directories: list[str] = []
    files: list[ScannedFile] = []
    links: dict[str, str] = {}
    problems: list[str] = []
    for directory, below, names in os.walk(root, onerror=_raise):
        for name in sorted((*below, *names)):
            path = Path(directory, name)
            relative, status = str(path.relative_to(root)), path.lstat()
            if stat.S_ISLNK(status.st_mode):
                links[relative] = str(path.readlink())
                problems += _link_problems(relative, links[relative])
            elif stat.S_ISDIR(status.st_mode):
                directories.append(relative)
            elif stat.S_ISREG(status.st_mode):
                files.append(_scanned(relative, status))
            else:
                problems.append(f"{relative!r} is no file but a pipe, socket or device")
    if problems:
        raise Precondition(
            f"{root} cannot be copied: " + "; ".join(problems), hint="remove what is named, or copy its parts"
        )
    return Tree(sorted(directories), sorted(files, key=lambda file: (file.name == last, file.name)), links)


def signature_of(status: os.stat_result) -> Signature:
    """The signature of a file as its status says."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def files_of(root: Path, names: Iterable[str]) -> Tree:
    """The files of these names right in `root`; a link stands for the file that it leads to, as caches of models have them."""
    return Tree([], [_scanned(name, (root / name).stat()) for name in names], {})


def _scanned(name: str, status: os.stat_result) -> ScannedFile:
    is_sparse = status.st_blocks * 512 < status.st_size
    return ScannedFile(name, signature_of(status), status.st_mode & 0o777, is_sparse)


def _link_problems(name: str, target: str) -> list[str]:
    landed = os.path.normpath(Path(name).parent / target)
    if Path(target).is_absolute() or landed == ".." or landed.startswith("../"):
        return [f"{name!r} is a link that leads out of it, to {target!r}"]
    return []


def _raise(error: OSError) -> None:
    raise error
