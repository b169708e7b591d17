"""Copying a mapping so that what arrives is what left, whole, and nothing that was there is lost."""

import secrets
import time
from pathlib import Path

from remote.artifacts.atomic import rename_without_replacing
from remote.artifacts.landing import is_taken, land
from remote.artifacts.manifest import artifact_ref, fingerprint_of
from remote.artifacts.mapping import FILE_NAMES, seal_mapping
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.artifacts.safe_copy import OnProgress, copy_files
from remote.artifacts.tree_scan import files_of
from remote.errors import Conflict, NotFound, WorkFailed
from remote.protocol.jobs import ArtifactRef


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
    if is_taken(destination) and not replace and _same(destination, hashes):
        return artifact_ref("mapping", destination)
    if is_taken(destination) and not replace:
        raise Conflict(
            f"{destination} exists and differs from {source}; nothing was written",
            hint="choose another destination, or pass --replace, which keeps the old one beside it",
        )
    tree = files_of(source, FILE_NAMES)
    with land(destination, fingerprint_of({"tree": tree.identity, "fingerprint": fingerprint})) as landing:
        if copy_files(source, tree, landing, on_progress) != hashes:
            landing.discard()
            raise WorkFailed(f"{source} changed while it was copied", hint="find out who writes it, then copy again")
        inputs = {"source": str(source), **hashes}
        seal_mapping(
            landing.tree,
            fingerprint=fingerprint,
            inputs=inputs,
            coverage=report.coverage if coverage is None else coverage,
        )
        read_mapping(landing.tree)
        if replace and is_taken(destination):
            rename_without_replacing(destination, _aside(destination))
        landing.publish()
    return artifact_ref("mapping", destination)


def _aside(destination: Path) -> Path:
    return destination.with_name(f"{destination.name}.replaced-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")


def _same(destination: Path, hashes: dict[str, str]) -> bool:
    try:
        report = validate_mapping(destination)
    except NotFound:
        return False
    return report.valid and report.provenance == "roost" and {f.name: f.sha256 for f in report.files} == hashes
