"""A mapping compared with what it is to be used with: the target, its tokenizer, a drafter, a store."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from remote.artifacts.chat_template import hash_tokenizer
from remote.artifacts.hidden_states import FORMAT as STORE_FORMAT
from remote.artifacts.manifest import MANIFEST_NAME, hash_file, read_manifest
from remote.artifacts.mapping_arrays import Array, MappingArrays, error, warning
from remote.artifacts.mapping_layouts import find_mapping
from remote.artifacts.mapping_pair import check_alone, meant_ids
from remote.artifacts.mapping_validation import examine, is_valid
from remote.artifacts.safetensors_file import open_safetensors
from remote.artifacts.target_tokens import end_ids, special_ids, target_vocab_size
from remote.errors import NotFound, Precondition
from remote.protocol.reports import Finding, MappingReport

_OF_THIS_TARGET = "build one for this target, or name the target that it was made for"


class Companions(NamedTuple):
    """What a mapping is compared with; None is left out."""

    target_model: Path | None = None
    drafter: Path | None = None
    store: Path | None = None


def validate_against(path: Path, companions: Companions) -> MappingReport:
    """The report on a mapping with what is wrong between it and its companions; raises NotFound for one that is not there."""
    for one in companions:
        if one is not None and not one.is_dir():
            raise NotFound(f"there is no directory {one}", hint="name a directory on the host")
    report, arrays = examine(find_mapping(path), path)
    findings = list(report.findings)
    if companions.target_model is not None:
        findings += _check_target(arrays, companions.target_model)
    if companions.drafter is not None:
        findings += _check_drafter(arrays, companions.drafter)
    if companions.store is not None:
        findings += _check_store(path, arrays, companions.store, companions.target_model)
    return msgspec.structs.replace(
        report, findings=findings, valid=is_valid(findings), against=[str(one) for one in companions if one is not None]
    )


def _check_target(arrays: MappingArrays, model: Path) -> Iterator[Finding]:
    try:
        vocab, special, ends = target_vocab_size(model), special_ids(model), end_ids(model)
    except Precondition as why:
        yield error("target-unreadable", why.info.message, why.info.hint or _OF_THIS_TARGET)
        return
    d2t, t2d = arrays.d2t, arrays.t2d
    if t2d is not None and len(t2d) != vocab:
        message = f"it is for a target of {len(t2d)} tokens, {model} has {vocab}"
        yield error("target-vocab-size", message, _OF_THIS_TARGET)
        return
    if d2t is None or not len(d2t):
        return
    if t2d is None:
        told = {"id-out-of-range", "size-wrong", "absolute-ids"}
        yield from (found for found in check_alone(d2t, vocab) if found.code in told)
    chosen = set(meant_ids(d2t, t2d, vocab).tolist())
    missing_ends = [token for token in ends if token not in chosen]
    if missing_ends:
        message = f"the target ends its answers with {_listed(missing_ends)}, which no draft id means: no end is ever proposed"
        yield warning("end-missing", message, "build it with --force-special, or --force with these ids")
    missing = [token for token in special if token not in chosen and token not in missing_ends]
    if missing:
        message = f"{len(missing)} of the target's {len(special)} special tokens have no draft id: {_listed(missing)}"
        yield Finding(
            code="special-missing",
            severity="info",
            message=message,
            fix="nothing, where answers do not hold them; else build it with --force-special",
        )


def _check_drafter(arrays: MappingArrays, drafter: Path) -> Iterator[Finding]:
    try:
        buffers = drafter_buffers(drafter)
    except (Precondition, OSError) as why:
        message = why.info.message if isinstance(why, Precondition) else str(why)
        yield error("drafter-unreadable", message, "name the directory of an exported drafter")
        return
    if "d2t" not in buffers:
        message = f"{drafter} has no d2t: an engine would take its draft ids for the target's, without an error"
        yield error("drafter-mapping-missing", message, "export the drafter again with its mapping")
        return
    for name, ours in (("d2t", arrays.d2t), ("t2d", arrays.t2d)):
        theirs = buffers.get(name)
        if ours is not None and theirs is not None and not _equal(ours, theirs):
            message = f"the {name} of {drafter} is another: {_difference(ours, theirs)}"
            yield error("drafter-mapping-differs", message, "serve a drafter with its own mapping, or train it again")


def drafter_buffers(drafter: Path) -> dict[str, Array]:
    """`d2t` and `t2d` of a drafter's checkpoint, as far as it has them; raises Precondition where it cannot be read."""
    files = sorted(drafter.glob("*.safetensors"))
    if not files:
        raise Precondition(f"{drafter} holds no *.safetensors", hint="name the directory of an exported drafter")
    found: dict[str, Array] = {}
    for file in files:
        try:
            arrays = open_safetensors(file).arrays
        except struct.error as why:
            raise Precondition(f"{file} is no safetensors file: {why}") from why
        for name, array in arrays.items():
            if name.removeprefix("model.") in {"d2t", "t2d"}:
                found[name.removeprefix("model.")] = array
    return found


def _check_store(path: Path, arrays: MappingArrays, store: Path, model: Path | None) -> Iterator[Finding]:
    try:
        manifest = read_manifest(store)
    except Precondition as why:
        yield error("store-unreadable", why.info.message, "name the directory of a finished store")
        return
    if manifest.format != STORE_FORMAT:
        yield error("store-unreadable", f"{store} holds a {manifest.format}, no store", "name a run's store")
        return
    properties: dict[str, Any] = manifest.properties
    made_of = _own_store(path)
    if made_of is not None and made_of != _manifest_hash(store):
        message = f"it was built from another store than {store}: its coverage of this one is not known"
        yield warning("store-differs", message, "`roost vocabulary coverage` says what it covers of this one")
    target = properties.get("model")
    if model is not None and properties.get("tokenizer_sha256") != hash_tokenizer(model):
        message = f"the store's ids come from another tokenizer than that of {model}"
        yield error("store-tokenizer", message, "name the target that the store was extracted from")
    elif model is None and arrays.t2d is not None and isinstance(target, str) and Path(target).is_dir():
        yield from (found for found in _check_target(arrays, Path(target)) if found.code == "target-vocab-size")


def _own_store(path: Path) -> str | None:
    """The hash of the store's manifest that a mapping's own manifest names."""
    try:
        return read_manifest(path).inputs.get("store")
    except (Precondition, OSError):
        return None


def _manifest_hash(directory: Path) -> str:
    return hash_file(directory / MANIFEST_NAME)


def _equal(ours: Array, theirs: Array) -> bool:
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def _difference(ours: Array, theirs: Array) -> str:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{theirs.dtype}{list(theirs.shape)} instead of {ours.dtype}{list(ours.shape)}"
    places = np.flatnonzero(ours != theirs)
    return f"{len(places)} of {len(ours)} entries differ, the first at {int(places[0])}"


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
