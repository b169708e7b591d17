"""The manifest of an artifact: what it was made of, by whom, and every file with its size and hash."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from remote.artifacts.atomic import write_atomic
from remote.errors import Precondition
from remote.protocol.jobs import ArtifactRef

MANIFEST_NAME = "manifest.json"

_HASH_BLOCK_BYTES = 1 << 20


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the artifact, by its path below the directory."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Written last: an artifact without it is unfinished. `inputs` names what it was made of, by hash or path."""

    format: str
    version: int
    fingerprint: str
    inputs: dict[str, str]
    producer: str
    created_at: float
    files: list[FileEntry]
    properties: dict[str, Any]


def hash_file(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def file_entry(directory: Path, name: str) -> FileEntry:
    """The entry of `directory/name` as it lies on disk."""
    path = directory / name
    return FileEntry(name=name, bytes=path.stat().st_size, sha256=hash_file(path))


def fingerprint_of(inputs: Mapping[str, Any]) -> str:
    """The SHA-256 of JSON-able inputs, independent of the order of their keys."""
    return hashlib.sha256(msgspec.json.encode(inputs, order="deterministic")).hexdigest()


def write_manifest(directory: Path, manifest: Manifest, names: Iterable[str] = ()) -> str:
    """Write the manifest, with entries for `names` hashed from disk besides its own; returns the SHA-256 of the file."""
    entries = [*manifest.files, *(file_entry(directory, name) for name in names)]
    whole = msgspec.structs.replace(manifest, files=entries)
    data = msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"
    write_atomic(directory / MANIFEST_NAME, data)
    return hashlib.sha256(data).hexdigest()


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a finished artifact; raises Precondition when it is missing or damaged."""
    path = directory / MANIFEST_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise Precondition(
            f"{directory} has no {MANIFEST_NAME}: it is missing or unfinished", hint="make it again"
        ) from None
    except (msgspec.DecodeError, OSError) as error:
        raise Precondition(f"the manifest {path} cannot be read: {error}", hint="make the artifact again") from error


def verify(directory: Path, *, hashes: bool = True) -> None:
    """Check every file's size, and its hash too unless told otherwise; raises Precondition that lists what differs."""
    problems: list[str] = []
    for entry in read_manifest(directory).files:
        path = directory / entry.name
        if not path.is_file():
            problems.append(f"{entry.name} is missing")
        elif path.stat().st_size != entry.bytes:
            problems.append(f"{entry.name} has {path.stat().st_size} bytes instead of {entry.bytes}")
        elif hashes and hash_file(path) != entry.sha256:
            problems.append(f"{entry.name} has other content than when it was finished")
    if problems:
        raise Precondition(f"{directory} is damaged: " + "; ".join(problems), hint="make it again from its inputs")


def artifact_ref(kind: str, directory: Path) -> ArtifactRef:
    """The reference to a finished artifact by the hash of its manifest; raises Precondition when it is unfinished."""
    read_manifest(directory)
    return ArtifactRef(kind=kind, path=str(directory), manifest_sha256=hash_file(directory / MANIFEST_NAME))
