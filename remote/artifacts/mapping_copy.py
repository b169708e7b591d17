"""Copying a mapping so that what arrives is what left, whole, and nothing that was there is lost."""

import hashlib
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from remote.artifacts.atomic import publish_directory, rename_without_replacing
from remote.artifacts.manifest import artifact_ref, fingerprint_of
from remote.artifacts.mapping import FILE_NAMES, seal_mapping
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.errors import Conflict, NotFound, WorkFailed
from remote.protocol.jobs import ArtifactRef
from remote.protocol.reports import MappingReport

_BLOCK_BYTES = 1 << 20

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in total."""


def copy_mapping(
    source: Path,
    destination: Path,
    *,
    replace: bool = False,
    on_progress: OnProgress,
    fingerprint: str | None = None,
    coverage: float | None = None,
) -> ArtifactRef:
    """Copy the five files byte for byte and seal them; an identical destination is left as it is.

    Raises Precondition for a source that does not validate (nothing is written then), Conflict for a different destination
    unless `replace`, which moves the old one aside. `fingerprint` and `coverage` go into the manifest.
    """
    read_mapping(source)
    report = validate_mapping(source)
    hashes = {file.name: file.sha256 for file in report.files}
    fingerprint = fingerprint or fingerprint_of(hashes)
    if _taken(destination) and not replace and _same(destination, hashes):
        return artifact_ref("mapping", destination)
    if _taken(destination) and not replace:
        raise Conflict(
            f"{destination} exists and differs from {source}; nothing was written",
            hint="choose another destination, or pass --replace, which keeps the old one beside it",
        )
    part = destination.with_name(f"{destination.name}.{secrets.token_hex(4)}.part")
    destination.parent.mkdir(parents=True, exist_ok=True)
    part.mkdir()
    try:
        _copy_files(source, part, report, on_progress)
        inputs = {"source": str(source), **hashes}
        seal_mapping(
            part, fingerprint=fingerprint, inputs=inputs, coverage=report.coverage if coverage is None else coverage
        )
        read_mapping(part)
        if replace and _taken(destination):
            rename_without_replacing(destination, _aside(destination))
        publish_directory(part, destination)
    except FileExistsError:
        raise Conflict(
            f"{destination} appeared while copying; nothing was replaced", hint="look at it, then copy again"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return artifact_ref("mapping", destination)


def _taken(destination: Path) -> bool:
    return destination.exists() or destination.is_symlink()


def _aside(destination: Path) -> Path:
    return destination.with_name(f"{destination.name}.replaced-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")


def _same(destination: Path, hashes: dict[str, str]) -> bool:
    try:
        report = validate_mapping(destination)
    except NotFound:
        return False
    return report.valid and report.provenance == "roost" and {f.name: f.sha256 for f in report.files} == hashes


def _copy_files(source: Path, part: Path, report: MappingReport, on_progress: OnProgress) -> None:
    total = sum(file.bytes for file in report.files)
    done = 0
    for file in report.files:
        digest = hashlib.sha256()
        with (source / file.name).open("rb") as reader, (part / file.name).open("xb") as writer:
            while block := reader.read(_BLOCK_BYTES):
                writer.write(block)
                digest.update(block)
                done += len(block)
        on_progress(done, total)
        if digest.hexdigest() != file.sha256:
            raise WorkFailed(
                f"{source / file.name} changed while it was copied", hint="find out who writes it, then copy again"
            )
    assert {entry.name for entry in report.files} == set(FILE_NAMES), "a valid mapping has the five files"
