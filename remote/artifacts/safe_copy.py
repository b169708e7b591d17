"""Copying a directory so that what arrives is what left: there whole or not at all, never nested, never over anything."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from remote.artifacts.landing import Landing, is_taken, land
from remote.artifacts.manifest import MANIFEST_NAME, hash_file
from remote.artifacts.tree_scan import ScannedFile, Tree, scan, signature_of
from remote.errors import Conflict, NotFound, Precondition, UsageError, WorkFailed

_BLOCK_BYTES = 1 << 20

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in total."""


def copy_tree(source: Path, destination: Path, *, on_progress: OnProgress) -> dict[str, str]:
    """Copy the tree `source` to the name `destination`; the SHA-256 of every file by its path below it.

    A destination with the same content is left as it is. A copy that broke off goes on with the files that it has, each
    compared by hash. Links inside the tree, second names of a file and holes are kept. Raises Conflict for a different
    destination, Busy for a copy under way, Precondition for a full disk or what cannot be copied, WorkFailed when the source
    changes meanwhile.
    """
    if not source.is_dir():
        raise NotFound(f"{source} is no directory", hint="name the directory of the artifact")
    _require_apart(source, destination)
    tree = scan(source, last=MANIFEST_NAME)
    with land(destination, tree.identity) as landing:
        if is_taken(destination):
            landing.discard()
            return _require_same(source, tree, destination)
        hashes = copy_files(source, tree, landing, on_progress)
        if scan(source, last=MANIFEST_NAME) != tree:
            landing.discard()
            raise _changed(source)
        landing.publish()
    return hashes


def copy_files(source: Path, tree: Tree, landing: Landing, on_progress: OnProgress) -> dict[str, str]:
    """Copy what `tree` lists into the landing, which is not published; the SHA-256 of every file."""
    landing.sweep({file.name for file in tree.files}, set(tree.directories))
    there = [status.st_size for file in tree.files if (status := _status(landing.tree / file.name)) is not None]
    is_sparse = any(file.is_sparse for file in tree.files)
    landing.require_room(0 if is_sparse else tree.size - sum(there), len(tree.files) - len(there))
    with landing.explaining_full_disks(tree.size):
        for name in tree.directories:
            (landing.tree / name).mkdir(exist_ok=True)
        hashes: dict[str, str] = {}
        first_names: dict[tuple[int, int], str] = {}
        done = 0
        for file in tree.files:
            first = first_names.setdefault(file.signature[:2], file.name)
            target = landing.tree / file.name
            if first != file.name:
                _link_again(landing.tree / first, target)
                hashes[file.name] = hashes[first]
                continue
            hashes[file.name] = _copy_file(source / file.name, file, target)
            done += file.size
            on_progress(done, tree.size)
        for name, link in tree.links.items():
            (landing.tree / name).symlink_to(link)
    return hashes


def _copy_file(source: Path, file: ScannedFile, target: Path) -> str:
    status = _status(target)
    is_there = status is not None and status.st_size == file.size
    if not is_there:
        target.unlink(missing_ok=True)
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as reader:
        if signature_of(os.fstat(descriptor)) != file.signature:
            raise _changed(source)
        digest = _hash(reader) if is_there else _write(reader, file, target)
        if signature_of(os.fstat(descriptor)) != file.signature:
            target.unlink(missing_ok=True)
            raise _changed(source)
    if is_there and hash_file(target) != digest:
        target.unlink()
        return _copy_file(source, file, target)
    return digest


def _hash(reader: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := reader.read(_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _write(reader: BinaryIO, file: ScannedFile, target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("xb", buffering=0) as writer:
        while block := reader.read(_BLOCK_BYTES):
            digest.update(block)
            if file.is_sparse and not block.strip(b"\0"):
                writer.seek(len(block), os.SEEK_CUR)
            else:
                write_whole(writer, block)
        writer.truncate()
        os.fchmod(writer.fileno(), file.mode)
        os.fsync(writer.fileno())
    return digest.hexdigest()


def write_whole(writer: BinaryIO, block: bytes) -> None:
    """Write all of `block` to an unbuffered file, which may take it in parts."""
    view = memoryview(block)
    while view:
        view = view[writer.write(view) or 0 :]


def _link_again(first: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    os.link(first, target)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _require_apart(source: Path, destination: Path) -> None:
    real, place = source.resolve(), destination.parent.resolve() / destination.name
    if place == real or real in place.parents:
        raise UsageError(f"{destination} lies in {source} itself", hint="choose a destination outside of it")


def _require_same(source: Path, tree: Tree, destination: Path) -> dict[str, str]:
    hashes = {file.name: hash_file(source / file.name) for file in tree.files}
    if (
        not destination.is_symlink()
        and destination.is_dir()
        and _content(destination) == (tree.directories, tree.links, hashes)
    ):
        return hashes
    raise Conflict(
        f"{destination} exists and differs from {source}; nothing was written", hint="choose another destination"
    )


def _content(directory: Path) -> tuple[list[str], dict[str, str], dict[str, str]] | None:
    try:
        tree = scan(directory, last=MANIFEST_NAME)
    except Precondition:
        return None
    return tree.directories, tree.links, {file.name: hash_file(directory / file.name) for file in tree.files}


def _changed(source: Path) -> WorkFailed:
    return WorkFailed(f"{source} changed while it was copied", hint="find out who writes it, then copy again")
