"""Whether a store is what its manifest says: structure, hashes, and samples that could have been captured."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from remote.artifacts.hidden_states import JOURNAL, Sample, ShardRecord, StoreProperties, StoreReader
from remote.artifacts.manifest import FileEntry, hash_file, read_manifest
from remote.artifacts.safetensors_file import TAG_OF_DTYPE, open_safetensors
from remote.errors import RoostError


def fault_of_states(hidden: "np.ndarray[Any, Any]", final: "np.ndarray[Any, Any]") -> str | None:
    """What makes states unbelievable: a value that is not finite, or a row of a layer that is all zero."""
    for name, array in (("hidden_states", hidden), ("final_hidden_states", final)):
        if not is_finite(array):
            return f"values in {name} that are not finite"
        # Of each layer by itself: one that was never written beside others that were would be learned from.
        if not array.any(axis=-1).all():
            return f"a row of {name} that is all zero"
    return None


def is_finite(array: "np.ndarray[Any, Any]") -> bool:
    """Whether every value is finite; uint16 arrays are bfloat16 bit patterns, whose exponent of all ones is inf or NaN."""
    if array.dtype == np.uint16:
        return not ((array & 0x7F80) == 0x7F80).any()
    return bool(np.isfinite(array).all())


def as_float(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """States as float32; uint16 is bfloat16, whose bits are the upper half."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


class Deviation(NamedTuple):
    """How far two captures of the same tokens are apart, each row as a share of its length: the worst row, and the median of the
    layer that is furthest.
    """

    largest: float
    typical: float


def deviation(captured: Sample, kept: Sample) -> Deviation:
    """Compare two captures of the same tokens."""
    largest, typical = 0.0, 0.0
    for name in ("hidden_states", "final_hidden_states"):
        one, other = as_float(getattr(captured, name)), as_float(getattr(kept, name))
        apart = np.linalg.norm(one - other, axis=-1) / np.maximum(np.linalg.norm(other, axis=-1), 1e-30)
        # Unlike max(), np.maximum keeps what is no number, and that is no small deviation.
        largest = float(np.maximum(largest, apart.max()))
        typical = float(np.maximum(typical, np.median(apart, axis=0).max()))
    return Deviation(largest, typical)


def journal_of(store: Path) -> list[ShardRecord]:
    """What the journal of a finished store says of its shards."""
    lines = (store / JOURNAL).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=ShardRecord) for line in lines]


def check_structure(store: StoreReader) -> Iterator[str]:
    """What contradicts itself: journal, manifest, and the tensors of every shard with the last row of each, without reading the rest."""
    listed = {entry.name for entry in read_manifest(store.directory).files}
    records = journal_of(store.directory)
    for record in records:
        name = record.file.name
        if name not in listed:
            yield f"{name} is in the journal and not in the manifest"
        try:
            yield from (
                f"{name}: {problem}" for problem in _check_shard(store.directory / name, record, store.properties)
            )
        except (RoostError, KeyError, ValueError) as error:
            yield f"{name}: {error}"
    samples, tokens = sum(len(record.sample_ids) for record in records), sum(record.tokens for record in records)
    if (samples, tokens) != (store.properties.samples, store.properties.tokens):
        yield (
            f"the manifest says {store.properties.samples} samples and {store.properties.tokens} tokens, "
            f"the shards have {samples} and {tokens}"
        )
    if len(set(store.sample_ids)) != len(store.sample_ids):
        yield "a sample is there twice"


def _check_shard(path: Path, record: ShardRecord, properties: StoreProperties) -> Iterator[str]:
    tensors = open_safetensors(path)
    tokens, layers, hidden = record.tokens, properties.layer_count, properties.hidden_size
    tag = TAG_OF_DTYPE[properties.dtype]
    expected = {
        "sample_offsets": ("I64", (len(record.sample_ids) + 1,)),
        "input_ids": ("I64", (tokens,)),
        "hidden_states": (tag, (tokens, layers, hidden)),
        "final_hidden_states": (tag, (tokens, hidden)),
        "loss_mask": ("BOOL", (tokens,)),
    }
    for name, (kind, shape) in expected.items():
        found = (tensors.tags[name], tensors.arrays[name].shape)
        if found != (kind, shape):
            yield f"{name} is {found[0]} {found[1]}, expected {kind} {shape}"
            return
    offsets = tensors.arrays["sample_offsets"]
    if offsets[0] != 0 or offsets[-1] != tokens or (np.diff(offsets) <= 0).any():
        yield "the offsets of its samples do not ascend from 0 to its tokens"
    for name in ("hidden_states", "final_hidden_states"):
        if not tensors.arrays[name][-1].any(axis=-1).all():
            yield f"{name} ends in zeros"


def check_sample(sample: Sample) -> Iterator[str]:
    """What is wrong with a sample, all of which is read."""
    fault = fault_of_states(sample.hidden_states, sample.final_hidden_states)
    if fault is not None:
        yield f"sample {sample.sample_id} has {fault}"
    if not sample.loss_mask.any():
        yield f"sample {sample.sample_id} has nothing that counts for the loss"


def check_hash(store: Path, entry: FileEntry) -> Iterator[str]:
    """Whether a file is what it was when it was finished; it is read in full."""
    if hash_file(store / entry.name) != entry.sha256:
        yield f"{entry.name} has other content than when it was finished"


def choose(count: int, of: int, seed: int) -> list[int]:
    """So many of `of` positions, at random but the same for a seed, in ascending order."""
    return sorted(random.Random(seed).sample(range(of), min(count, of)))  # noqa: S311 - a sample, not a secret
