"""What a manifest promises, checked before anything is read or written by its names."""

import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from remote.artifacts.manifest import MANIFEST_NAME, FileEntry, Manifest
from remote.errors import Precondition, UsageError

MAX_MANIFEST_BYTES = 64 << 20
_MAX_FILE_BYTES = 1 << 50
_HASH = re.compile(r"[0-9a-f]{64}")
_OURS = frozenset({"jobs", "ops", "releases", "trash", "reserve"})


class Inventory(NamedTuple):
    """The manifest's bytes, their SHA-256, and the files that it lists."""

    data: bytes
    sha256: str
    files: list[FileEntry]

    @property
    def size(self) -> int:
        """Bytes of all files, the manifest besides."""
        return sum(entry.bytes for entry in self.files)

    @property
    def directories(self) -> list[str]:
        """The directories that the files need, from the top down."""
        parents = {str(parent) for entry in self.files for parent in PurePosixPath(entry.name).parents}
        return sorted(parents - {"."})


def inventory(data: bytes, whose: str) -> Inventory:
    """The inventory in a manifest's bytes; raises Precondition for one that is damaged or names what it must not."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Precondition(
            f"the manifest of {whose} cannot be read: {error}", hint="make the artifact again"
        ) from error
    problems = [problem for entry in manifest.files if (problem := _problem(entry))]
    names = {entry.name for entry in manifest.files}
    if len(names) < len(manifest.files):
        problems.append("a name comes twice")
    found = Inventory(data, hashlib.sha256(data).hexdigest(), manifest.files)
    problems += [f"{name!r} is a file and a directory" for name in sorted(names.intersection(found.directories))]
    if problems:
        raise Precondition(
            f"the manifest of {whose} is not to be trusted, nothing was written: " + "; ".join(problems[:5]),
            hint="find out who wrote it",
        )
    return found


def place(root: Path, path: str, *, writing: bool) -> Path:
    """The directory that `path` names, absolute or below `root`; raises UsageError for one that is not to be used."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or "\0" in path:
        raise UsageError(
            f"{path!r} is no directory to use", hint="an absolute path, or one below Roost's root without .."
        )
    found = root / path
    if writing and found.is_relative_to(root) and (found == root or found.relative_to(root).parts[0] in _OURS):
        raise UsageError(f"{found} is Roost's own", hint="choose another directory, such as imported/NAME")
    return found


def _problem(entry: FileEntry) -> str | None:
    parts = entry.name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\0" in entry.name or "\\" in entry.name:
        return f"{entry.name!r} is no name of a file below it"
    if entry.name == MANIFEST_NAME:
        return "it lists itself"
    if not 0 <= entry.bytes <= _MAX_FILE_BYTES or not _HASH.fullmatch(entry.sha256):
        return f"{entry.name!r} has no possible size or hash"
    return None
