"""What can be wrong with a mapping, found without torch and without executing anything.

Every finding has a stable code, a severity and a fix. Only an error makes a mapping invalid.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from remote.artifacts.manifest import MANIFEST_NAME, Manifest, hash_file, read_manifest
from remote.artifacts.mapping import FILE_NAMES, FORMAT, META_NAME, Mapping
from remote.artifacts.torch_pickle import UnreadableTensor, read_tensor
from remote.errors import NotFound, Precondition
from remote.protocol.reports import Finding, MappedFile, MappingReport

_REBUILD = "build the mapping again, or copy it from a source that validates"

Array = np.ndarray[Any, Any]


def _error(code: str, message: str, fix: str = _REBUILD) -> Finding:
    return Finding(code=code, severity="error", message=message, fix=fix)


def validate_mapping(directory: Path) -> MappingReport:
    """Everything there is to say about the mapping in `directory`; raises NotFound when there is no such directory."""
    if not directory.is_dir():
        raise NotFound(f"there is no mapping directory {directory}", hint="name the directory that holds d2t.npy")
    findings = [_error("file-missing", f"{name} is missing") for name in FILE_NAMES if not (directory / name).is_file()]
    arrays = _load_arrays(directory, findings)
    if "d2t.npy" in arrays and "t2d.npy" in arrays:
        findings += check_pair(arrays["d2t.npy"], arrays["t2d.npy"])
    findings += _check_twins(arrays)
    meta = _check_meta(directory, arrays, findings)
    manifest = _check_manifest(directory, findings)
    files = [
        MappedFile(name=name, bytes=(directory / name).stat().st_size, sha256=hash_file(directory / name))
        for name in FILE_NAMES
        if (directory / name).is_file()
    ]
    d2t, t2d = arrays.get("d2t.npy"), arrays.get("t2d.npy")
    coverage = meta.get("coverage")
    return MappingReport(
        path=str(directory),
        valid=not any(finding.severity == "error" for finding in findings),
        findings=findings,
        files=files,
        draft_vocab_size=len(d2t) if d2t is not None and d2t.ndim == 1 else None,
        target_vocab_size=len(t2d) if t2d is not None and t2d.ndim == 1 else None,
        coverage=float(coverage) if isinstance(coverage, int | float) else None,
        provenance="foreign" if manifest is None else "roost",
    )


def read_mapping(directory: Path) -> Mapping:
    """The mapping in `directory` if it is valid; raises Precondition that names every error, NotFound without a directory."""
    report = validate_mapping(directory)
    if not report.valid:
        errors = [f"{finding.message} [{finding.code}]" for finding in report.findings if finding.severity == "error"]
        raise Precondition(f"the mapping {directory} must not be used: " + "; ".join(errors), hint=_REBUILD)
    return Mapping(
        np.load(directory / "d2t.npy", allow_pickle=False), np.load(directory / "t2d.npy", allow_pickle=False)
    )


def _load_arrays(directory: Path, findings: list[Finding]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name in ("d2t.npy", "t2d.npy", "d2t.pt", "t2d.pt"):
        path = directory / name
        if not path.is_file():
            continue
        try:
            array = np.load(path, allow_pickle=False) if name.endswith(".npy") else read_tensor(path)
        except UnreadableTensor as error:
            findings.append(_error("file-unreadable", f"{name} cannot be read: {error}"))
        except (ValueError, OSError, EOFError) as error:
            findings.append(_error("file-unreadable", f"{name} cannot be read: {error}"))
        else:
            problem = _check_type(name, array)
            findings += problem
            if not problem:
                arrays[name] = array
    return arrays


def _check_type(name: str, array: Array) -> list[Finding]:
    wanted = np.dtype(np.int64) if name.startswith("d2t") else np.dtype(np.bool_)
    if array.ndim != 1:
        return [_error("shape-wrong", f"{name} has shape {array.shape}, a vector is needed")]
    if array.dtype == wanted:
        return []
    if array.dtype == wanted.newbyteorder():
        return [_error("byte-order-wrong", f"{name} is big-endian ({array.dtype.str})", "save it little-endian")]
    if name.startswith("d2t") and array.dtype == np.int32:
        return [_error("dtype-int32", f"{name} is int32, int64 is needed", "convert it: d2t.astype(int64)")]
    return [_error("dtype-wrong", f"{name} is {array.dtype}, {wanted} is needed")]


def check_pair(d2t: Array, t2d: Array) -> list[Finding]:
    """What is wrong with the offsets `d2t` int64 [D] and the mask `t2d` bool [V], alone and together."""
    draft, vocab = len(d2t), len(t2d)
    if draft == 0 or draft > vocab:
        return [_error("size-wrong", f"d2t has {draft} entries for a target vocabulary of {vocab}")]
    ids = d2t + np.arange(draft)
    if _looks_absolute(d2t, t2d):
        return [
            _error(
                "absolute-ids",
                "d2t holds absolute target ids, not offsets: a server would propose wrong tokens without an error",
                "subtract arange: d2t = d2t - arange(len(d2t))",
            )
        ]
    findings: list[Finding] = []
    if d2t.min() < 0:
        findings.append(
            _error("offset-negative", f"d2t[{int(d2t.argmin())}] = {int(d2t.min())}; offsets are never negative")
        )
    if draft > 1 and (np.diff(d2t) < 0).any():
        place = int(np.flatnonzero(np.diff(d2t) < 0)[0]) + 1
        hint = " (its tail is zero: a truncated copy)" if not d2t[place:].any() else ""
        findings.append(_error("offset-decreasing", f"d2t falls at draft id {place}{hint}; offsets never decrease"))
    if ids.max() >= vocab:
        findings.append(
            _error(
                "id-out-of-range",
                f"draft id {int(ids.argmax())} maps to {int(ids.max())}, the target has {vocab} tokens",
            )
        )
    marked = np.flatnonzero(t2d)
    if len(marked) != draft:
        findings.append(_error("mask-count", f"t2d marks {len(marked)} tokens, d2t has {draft} entries"))
    elif not np.array_equal(marked, ids):
        place = int(np.flatnonzero(marked != ids)[0])
        findings.append(
            _error(
                "mask-mismatch",
                f"draft id {place} maps to {int(ids[place])} by d2t and to {int(marked[place])} by t2d",
                "the two files belong to different mappings: " + _REBUILD,
            )
        )
    return findings


def _looks_absolute(d2t: Array, t2d: Array) -> bool:
    marked = np.flatnonzero(t2d)
    return len(marked) == len(d2t) and np.array_equal(d2t, marked) and not np.array_equal(marked, np.arange(len(d2t)))


def _check_twins(arrays: dict[str, Array]) -> list[Finding]:
    findings: list[Finding] = []
    for stem in ("d2t", "t2d"):
        npy, pt = arrays.get(f"{stem}.npy"), arrays.get(f"{stem}.pt")
        if npy is not None and pt is not None and not np.array_equal(npy, pt):
            findings.append(_error("twins-differ", f"{stem}.npy and {stem}.pt hold different values"))
    return findings


def _check_meta(directory: Path, arrays: dict[str, Array], findings: list[Finding]) -> dict[str, Any]:
    path = directory / META_NAME
    if not path.is_file():
        return {}
    try:
        meta = json.loads(path.read_bytes())
    except ValueError as error:
        findings.append(_error("meta-unreadable", f"{META_NAME} is no JSON: {error}"))
        return {}
    if not isinstance(meta, dict):
        findings.append(_error("meta-unreadable", f"{META_NAME} holds a {type(meta).__name__}, not an object"))
        return {}
    for key, name in (("vocab_size", "t2d.npy"), ("draft_vocab_size", "d2t.npy")):
        if name in arrays and meta.get(key) != len(arrays[name]):
            findings.append(
                _error("meta-mismatch", f"{META_NAME} says {key} {meta.get(key)}, {name} has {len(arrays[name])}")
            )
    if meta.get("d2t_semantics", "offset") != "offset":
        findings.append(
            _error("meta-mismatch", f"{META_NAME} says that d2t holds {meta['d2t_semantics']!r}, not offsets")
        )
    return meta


def _check_manifest(directory: Path, findings: list[Finding]) -> Manifest | None:
    if not (directory / MANIFEST_NAME).exists():
        message = "no Roost manifest lies beside the files: made elsewhere, its provenance is unknown"
        fix = "`roost vocabulary copy` validates it and records its hashes"
        findings.append(Finding(code="manifest-missing", severity="info", message=message, fix=fix))
        return None
    try:
        manifest = read_manifest(directory)
    except Precondition as error:
        findings.append(_error("manifest-unreadable", error.info.message))
        return None
    if manifest.format != FORMAT:
        findings.append(_error("manifest-foreign", f"the manifest is of a {manifest.format}, not of a mapping"))
    for entry in manifest.files:
        path = directory / entry.name
        if path.is_file() and hash_file(path) != entry.sha256:
            findings.append(_error("hash-mismatch", f"{entry.name} has other content than its manifest says"))
    return manifest
