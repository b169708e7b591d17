"""What can be wrong with a mapping, found without torch and without executing anything.

Every finding has a stable code, a severity and a fix. Only an error makes a mapping invalid.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from remote.artifacts.manifest import MANIFEST_NAME, Manifest, hash_file, read_manifest
from remote.artifacts.mapping import FORMAT, META_NAME, Mapping
from remote.artifacts.mapping_arrays import CONVERT, REBUILD, Array, MappingArrays, error, read_arrays, warning
from remote.artifacts.mapping_layouts import MappingPlace, find_mapping, size_in_name
from remote.artifacts.mapping_pair import check_alone, check_pair
from remote.errors import Precondition
from remote.protocol.reports import Finding, MappedFile, MappingReport


def validate_mapping(path: Path) -> MappingReport:
    """Everything there is to say about the mapping in a directory or file; raises NotFound where there is none."""
    return examine(find_mapping(path), path)[0]


def examine(place: MappingPlace, path: Path) -> tuple[MappingReport, MappingArrays]:
    """The report on the mapping at `place`, which was asked for as `path`, and its tensors as far as they can be read."""
    findings: list[Finding] = []
    sealing: list[Finding] = []
    manifest = None if path.is_file() else _check_manifest(place, sealing)
    recorded = manifest.properties if manifest is not None and manifest.format == FORMAT else {}
    arrays = read_arrays(place, findings)
    d2t, t2d = arrays.d2t, arrays.t2d
    vocab_size = _as_size(recorded.get("vocab_size")) if t2d is None else len(t2d)
    if d2t is not None and t2d is not None:
        findings += check_pair(d2t, t2d)
    elif d2t is not None and not place.masks:
        findings += check_alone(d2t, vocab_size)
    findings += _check_twins(arrays)
    findings += _check_layout(place, arrays, vocab_size)
    meta = read_meta(place, findings)
    _check_meta(meta, arrays, findings)
    findings += sealing
    report = MappingReport(
        path=str(path),
        valid=is_valid(findings),
        findings=findings,
        files=[
            MappedFile(name=name, bytes=file.stat().st_size, sha256=hash_file(file))
            for name in place.names
            if (file := place.directory / name).is_file()
        ],
        draft_vocab_size=None if d2t is None else len(d2t),
        target_vocab_size=vocab_size,
        coverage=_as_share((recorded if meta is None else meta).get("coverage")),
        provenance="foreign" if manifest is None else "roost",
        layout=place.layout,
    )
    return report, arrays


def is_valid(findings: list[Finding]) -> bool:
    """Whether no finding is an error."""
    return not any(finding.severity == "error" for finding in findings)


def read_mapping(directory: Path) -> Mapping:
    """The mapping in `directory` if it is valid and in Roost's layout; raises Precondition that names every error, NotFound
    without a directory.
    """
    report, arrays = examine(find_mapping(directory), directory)
    require_valid(report)
    if report.layout != "roost":
        raise Precondition(
            f"the mapping {directory} lies in the layout of {report.layout}",
            hint=f"`roost vocabulary convert {directory} DIR` makes one that runs can use",
        )
    assert arrays.d2t is not None, "a valid mapping has both"
    assert arrays.t2d is not None, "a valid mapping has both"
    return Mapping(arrays.d2t, arrays.t2d)


def require_valid(report: MappingReport) -> None:
    """Raise Precondition that names every error of a mapping that has any."""
    if not report.valid:
        errors = [found for found in report.findings if found.severity == "error"]
        words = "; ".join(f"{found.message} [{found.code}]" for found in errors)
        raise Precondition(f"the mapping {report.path} must not be used: {words}", hint=errors[0].fix)


def _check_twins(arrays: MappingArrays) -> list[Finding]:
    findings: list[Finding] = []
    for tensors, others in ((arrays.offsets, arrays.masks), (arrays.masks, arrays.offsets)):
        for first, (name, other) in zip(list(tensors.items())[:1], list(tensors.items())[1:], strict=False):
            if np.array_equal(first[1], other):
                continue
            message = f"{first[0]} and {name} hold different values"
            fitting = [
                one for one, tensor in (first, (name, other)) if all(_fit(tensor, mate) for mate in others.values())
            ]
            if others and len(fitting) == 1:
                message += f"; {fitting[0]} is the one that fits {' and '.join(others)}"
            findings.append(error("twins-differ", message))
    return findings


def _fit(one: Array, other: Array) -> bool:
    d2t, t2d = (other, one) if one.dtype == np.bool_ else (one, other)
    return np.array_equal(np.flatnonzero(t2d), d2t + np.arange(len(d2t)))


def _check_layout(place: MappingPlace, arrays: MappingArrays, vocab_size: int | None) -> list[Finding]:
    if place.layout == "roost":
        return []
    findings = [
        Finding(
            code=f"layout-{place.layout}",
            severity="info",
            message=f"it lies in the layout of {place.layout} ({', '.join(place.names)}); runs want Roost's",
            fix="`roost vocabulary convert SRC DST` makes one that runs can use",
        )
    ]
    if not place.masks:
        unknown = "" if vocab_size is not None else ", nor how many the target has"
        message = f"it has no t2d, so nothing here proves which tokens are meant{unknown}"
        findings.append(warning("mask-missing", message, f"compare it with its target; {CONVERT} with --target"))
    for name, array in (*arrays.offsets.items(),):
        size = size_in_name(name)
        if size is not None and size != len(array):
            findings.append(error("name-mismatch", f"{name} holds {len(array)} entries, not the {size} of its name"))
    return findings


def read_meta(place: MappingPlace, findings: list[Finding]) -> dict[str, Any] | None:
    """The metadata of a mapping in Roost's layout; what is wrong with the file goes into `findings`."""
    path = place.directory / META_NAME
    if place.layout != "roost" or not path.is_file():
        return None
    try:
        meta = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as why:
        findings.append(error("meta-unreadable", f"{META_NAME} is no JSON: {why}"))
        return None
    if not isinstance(meta, dict):
        findings.append(error("meta-unreadable", f"{META_NAME} holds a {type(meta).__name__}, not an object"))
        return None
    return meta


def _check_meta(meta: dict[str, Any] | None, arrays: MappingArrays, findings: list[Finding]) -> None:
    if meta is None:
        return
    for key, array, stem in (("vocab_size", arrays.t2d, "t2d"), ("draft_vocab_size", arrays.d2t, "d2t")):
        if array is not None and (type(meta.get(key)) is not int or meta[key] != len(array)):
            findings.append(
                error("meta-mismatch", f"{META_NAME} says {key} {meta.get(key)}, {stem} has {len(array)} entries")
            )
    if meta.get("d2t_semantics", "offset") != "offset":
        findings.append(
            error("meta-mismatch", f"{META_NAME} says that d2t holds {meta['d2t_semantics']!r}, not offsets")
        )
    if meta.get("coverage") is not None and _as_share(meta["coverage"]) is None:
        findings.append(error("meta-mismatch", f"{META_NAME} says coverage {meta['coverage']!r}, which is no share"))


def _as_size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _as_share(value: object) -> float | None:
    """A share between 0 and 1, None for anything else that JSON may hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= 1 else None


def _check_manifest(place: MappingPlace, findings: list[Finding]) -> Manifest | None:
    directory = place.directory
    if not (directory / MANIFEST_NAME).exists():
        message = "no Roost manifest lies beside the files: made elsewhere, its provenance is unknown"
        fix = "`roost vocabulary copy` validates it and records its hashes"
        findings.append(Finding(code="manifest-missing", severity="info", message=message, fix=fix))
        return None
    try:
        manifest = read_manifest(directory)
    except Precondition as why:
        findings.append(error("manifest-unreadable", why.info.message, REBUILD))
        return None
    if manifest.format != FORMAT and place.layout != "drafter":
        findings.append(error("manifest-foreign", f"the manifest is of a {manifest.format}, not of a mapping"))
        return manifest
    listed = {entry.name for entry in manifest.files}
    findings += [
        error("manifest-incomplete", f"the manifest does not list {name}") for name in place.names if name not in listed
    ]
    for entry in manifest.files:
        path = directory / entry.name
        if not path.is_file() and entry.name not in place.names:
            findings.append(error("file-missing", f"{entry.name}, which the manifest lists, is missing"))
        elif path.is_file() and hash_file(path) != entry.sha256:
            findings.append(error("hash-mismatch", f"{entry.name} has other content than its manifest says"))
    return manifest
