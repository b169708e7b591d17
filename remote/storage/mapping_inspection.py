"""Everything that a host knows of a mapping: what it is, where it came from, who else has it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from remote.artifacts.manifest import MANIFEST_NAME, Manifest, hash_file, read_manifest
from remote.artifacts.mapping_arrays import Array
from remote.artifacts.mapping_checks import drafter_buffers
from remote.artifacts.mapping_copy import backups_of
from remote.artifacts.mapping_layouts import find_mapping
from remote.artifacts.mapping_pair import meant_ids
from remote.artifacts.mapping_validation import examine, read_meta
from remote.artifacts.target_tokens import special_ids
from remote.artifacts.token_counts import FORMAT as COUNTS_FORMAT
from remote.errors import Precondition, RoostError
from remote.jobs.store import JobStore
from remote.paths import resolve_path
from remote.protocol.mappings import MappingBuildSpec, MappingConvertSpec
from remote.protocol.reports import MappingInspection, MappingUse
from remote.protocol.specs import MappingCopySpec, RunSpec
from remote.storage.areas import find_areas

_MAKERS = (MappingBuildSpec, MappingConvertSpec, MappingCopySpec)
_COUNTS_BESIDE = ("counts", "{name}-counts")


def inspect_mapping(store: JobStore, path: Path, target_model: Path | None) -> MappingInspection:
    """Inspect the mapping at `path`, its special tokens by `target_model` or else the target that its metadata names.

    Raises NotFound where there is none.
    """
    place = find_mapping(path)
    report, arrays = examine(place, path)
    manifest = _manifest(place.directory)
    d2t = arrays.d2t
    ids = None if d2t is None or not len(d2t) else meant_ids(d2t, arrays.t2d)
    meta = read_meta(place, []) or {}
    target = target_model or _own_target(meta)
    special = None if target is None else special_ids(target)
    return MappingInspection(
        report=report,
        meta={key: str(value) for key, value in meta.items()},
        producer=None if manifest is None else manifest.producer,
        created_at=None if manifest is None else manifest.created_at,
        inputs={} if manifest is None else manifest.inputs,
        lowest_id=None if ids is None else int(ids.min()),
        highest_id=None if ids is None else int(ids.max()),
        special_tokens=None if special is None else len(special),
        special_covered=None if special is None or ids is None else int(np.isin(special, ids).sum()),
        used_by=[] if d2t is None else sorted(_uses(store, path, d2t), key=lambda use: (use.kind, use.path)),
        backups=[str(backup) for backup in backups_of(path)],
        counts=_find_counts(path, manifest),
    )


def _uses(store: JobStore, path: Path, d2t: Array) -> Iterator[MappingUse]:
    here = path.resolve()
    jobs = store.list()
    runs = [area.path for area in find_areas(store) if area.kind == "run"]
    made = [resolve_path(store.root, job.spec.destination) for job in jobs if isinstance(job.spec, _MAKERS)]
    for mapping in dict.fromkeys((*(run / "mapping" for run in runs), *made)):
        if mapping.resolve() != here and _has(mapping, d2t):
            yield MappingUse(kind="mapping", path=str(mapping))
    for run in runs:
        if _is_in(run / "drafter", d2t):
            yield MappingUse(kind="drafter", path=str(run / "drafter"))
    for job in jobs:
        source = job.spec.run.vocabulary.source if isinstance(job.spec, RunSpec) else None
        if source is not None and resolve_path(store.root, source).resolve() == here:
            yield MappingUse(kind="run", path=job.job_id)


def _has(mapping: Path, d2t: Array) -> bool:
    try:
        found = np.load(mapping / "d2t.npy", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return False
    return np.array_equal(found, d2t)


def _is_in(drafter: Path, d2t: Array) -> bool:
    try:
        found = drafter_buffers(drafter).get("d2t")
    except (RoostError, OSError):
        return False
    return found is not None and np.array_equal(found, d2t)


def _manifest(directory: Path) -> Manifest | None:
    try:
        return read_manifest(directory)
    except Precondition:
        return None


def _own_target(meta: dict[str, Any]) -> Path | None:
    named = meta.get("target_model")
    return Path(named) if isinstance(named, str) and Path(named, "config.json").is_file() else None


def _find_counts(path: Path, manifest: Manifest | None) -> str | None:
    """Where the counts lie that the mapping was built from: its manifest has the hash of theirs, or of the same store's."""
    if manifest is None:
        return None
    inputs = manifest.inputs
    named = [Path(inputs["counts"])] if "counts" in inputs else []
    for place in (*named, *(path.with_name(name.format(name=path.name)) for name in _COUNTS_BESIDE)):
        counts = _manifest(place)
        if counts is None or counts.format != COUNTS_FORMAT:
            continue
        if (
            inputs.get("counts_manifest") == hash_file(place / MANIFEST_NAME)
            or inputs.get("store") in counts.inputs.values()
        ):
            return str(place)
    return None
