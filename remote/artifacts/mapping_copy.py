"""Copying a mapping so that what arrives is what left, whole, and nothing that was there is lost."""

import os
from pathlib import Path

from remote.artifacts.landing import ASIDE_MARK, clear_landed, is_taken, land
from remote.artifacts.manifest import MANIFEST_NAME, artifact_ref, fingerprint_of, hash_file, read_manifest
from remote.artifacts.mapping import FILE_NAMES, seal_mapping
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.artifacts.safe_copy import OnProgress, copy_files
from remote.artifacts.tree_scan import files_of
from remote.errors import Conflict, NotFound, Precondition, WorkFailed
from remote.protocol.jobs import ArtifactRef

_OF_A_MAPPING = ("d2t", "t2d", "vocab_mapping")
"""How the files of mappings begin, of whichever trainer."""


def copy_mapping(
    source: Path,
    destination: Path,
    *,
    replace: bool = False,
    on_progress: OnProgress,
    fingerprint: str | None = None,
    coverage: float | None = None,
    origin: str | None = None,
) -> ArtifactRef:
    """Copy the five files byte for byte and seal them; an identical destination is left as it is, or sealed.

    Raises Precondition for a source that does not validate (nothing is written then), Conflict for a different destination
    unless `replace`, which moves the old mapping aside, and for one that lies within another artifact. `fingerprint`, `coverage` and `origin` go into the manifest.
    """
    _refuse_within_an_artifact(destination)
    read_mapping(source)
    report = validate_mapping(source)
    hashes = {file.name: file.sha256 for file in report.files}
    fingerprint = fingerprint or fingerprint_of(hashes)
    coverage = report.coverage if coverage is None else coverage
    inputs = {"source": origin or str(source), **_provenance(source), **hashes}
    tree = files_of(source, FILE_NAMES)
    identity = fingerprint_of({"tree": tree.identity, "fingerprint": fingerprint})
    if is_taken(destination):
        there = _hashes(destination)
        if there == (hashes, True):
            clear_landed(destination, identity)
            return artifact_ref("mapping", destination)
        if there == (hashes, False):
            return seal_mapping(destination, fingerprint=fingerprint, inputs=inputs, coverage=coverage)
        if not replace:
            raise Conflict(
                f"{destination} exists and differs from {source}; nothing was written",
                hint="choose another destination; to put that one aside, which keeps it beside the new one, is a person's decision: --replace",
            )
        _require_a_mapping(destination)
    with land(destination, identity) as landing:
        if copy_files(source, tree, landing, on_progress) != hashes:
            landing.discard()
            raise WorkFailed(f"{source} changed while it was copied", hint="find out who writes it, then copy again")
        seal_mapping(landing.tree, fingerprint=fingerprint, inputs=inputs, coverage=coverage)
        read_mapping(landing.tree)
        if replace and is_taken(destination):
            landing.publish_over()
        else:
            landing.publish()
    return artifact_ref("mapping", destination)


def backups_of(mapping: Path) -> list[Path]:
    """What copies over `mapping` left beside it, the oldest first."""
    return sorted(mapping.parent.glob(f"{mapping.name}{ASIDE_MARK}*"))


def _refuse_within_an_artifact(destination: Path) -> None:
    for above in Path(os.path.normpath(destination)).parents:
        if (above / MANIFEST_NAME).exists():
            raise Conflict(
                f"{destination} lies within {above}, which is an artifact of its own; nothing was written",
                hint="choose a destination outside of it; to put the mapping in its place, name it and pass --replace",
            )


def _require_a_mapping(destination: Path) -> None:
    """`--replace` puts a mapping aside, also a broken one, and an empty directory; never somebody's store or home."""
    names = {path.name for path in destination.iterdir()} if destination.is_dir() else {destination.name}
    if names and not any(name.startswith(_OF_A_MAPPING) for name in names):
        raise Conflict(
            f"{destination} exists and is no mapping; it was not replaced",
            hint="choose another destination, or move that away yourself",
        )


def _provenance(source: Path) -> dict[str, str]:
    """What the source's own manifest says of where it came from."""
    try:
        manifest = read_manifest(source)
    except Precondition:
        return {}
    kept = {name: manifest.inputs[name] for name in ("store", "counts_manifest") if name in manifest.inputs}
    return {**kept, "source_manifest": hash_file(source / MANIFEST_NAME), "source_fingerprint": manifest.fingerprint}


def _hashes(destination: Path) -> tuple[dict[str, str], bool] | None:
    """The hashes of a valid mapping's files, and whether it is sealed; None for anything else."""
    try:
        report = validate_mapping(destination)
    except (NotFound, Precondition):
        return None
    if not report.valid or destination.is_symlink() or not destination.is_dir():
        return None
    return {file.name: file.sha256 for file in report.files}, report.provenance == "roost"
