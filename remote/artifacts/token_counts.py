"""How often each token stands where it counts for the loss: counted once, kept as an artifact, merged with weights."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from remote.artifacts.manifest import Manifest, artifact_ref, read_manifest, verify, write_manifest
from remote.errors import Precondition, UsageError
from remote.protocol.jobs import ArtifactRef
from remote.protocol.mappings import CountedSource
from remote.protocol.run import TemplateVariables

FORMAT = "roost-token-counts"
VERSION = 1
PRODUCER = "roost vocabulary 2"
FILE_NAME = "token_counts.npy"

Array = np.ndarray[Any, Any]


class CountsProperties(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted: the target whose ids these are, the sources with their weights, and with which template variables
    conversations were read.
    """

    target_model: str
    tokenizer_sha256: str
    vocab_size: int
    tokens: float
    sources: list[CountedSource]
    chat_template_kwargs: TemplateVariables = {}


def merge_counts(parts: Sequence[tuple[Array, float]]) -> Array:
    """The weighted sum of counts [V]: int64 where counts and weights are whole, else float64."""
    if not parts:
        raise UsageError("nothing was counted", hint="name at least one source")
    whole = all(counts.dtype.kind == "i" and float(weight).is_integer() for counts, weight in parts)
    total = np.zeros(len(parts[0][0]), np.int64 if whole else np.float64)
    for counts, weight in parts:
        total += counts * (int(weight) if whole else weight)
    return total


def force_tokens(counts: Array, forced: Sequence[int], draft_vocab_size: int) -> Array:
    """Counts with which `Mapping.from_counts` takes every forced id first; raises UsageError for what does not fit."""
    ids = np.unique(np.asarray(forced, np.int64))
    if len(ids) and ids[-1] >= len(counts):
        raise UsageError(f"{ids[-1]} is no token of a target of {len(counts)} tokens")
    if len(ids) > draft_vocab_size:
        raise UsageError(f"{len(ids)} forced tokens do not fit a draft vocabulary of {draft_vocab_size}")
    raised = counts.copy()
    raised[ids] += counts.max() + 1
    return raised


def write_counts(directory: Path, counts: Array, properties: CountsProperties, *, fingerprint: str) -> ArtifactRef:
    """Write counts [V] and their manifest into `directory`, which exists and is empty."""
    np.save(directory / FILE_NAME, counts)
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        fingerprint=fingerprint,
        inputs={source.path: source.sha256 for source in properties.sources},
        producer=PRODUCER,
        created_at=time.time(),
        files=[],
        properties=msgspec.to_builtins(properties),
    )
    write_manifest(directory, manifest, [FILE_NAME])
    return artifact_ref("counts", directory)


def read_counts(directory: Path) -> tuple[Array, CountsProperties]:
    """Counts [V] that were kept, and what they are of; raises Precondition where they are damaged or something else."""
    manifest = read_manifest(directory)
    if manifest.format != FORMAT or manifest.version != VERSION:
        raise Precondition(f"{directory} is {manifest.format} version {manifest.version}, not token counts")
    verify(directory)
    properties = msgspec.convert(manifest.properties, CountsProperties)
    counts = np.load(directory / FILE_NAME, allow_pickle=False)
    if counts.shape != (properties.vocab_size,) or counts.dtype not in (np.int64, np.float64) or counts.min() < 0:
        raise Precondition(f"{directory / FILE_NAME} holds no counts of {properties.vocab_size} tokens")
    return counts, properties
