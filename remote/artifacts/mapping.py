"""The draft-vocabulary mapping: which target tokens a drafter can propose.

`d2t` int64 [D] holds offsets: `target_id = draft_id + d2t[draft_id]`. `t2d` bool [V] marks the target tokens that have a draft
id. Invariant: `nonzero(t2d) == d2t + arange(D)` (SpecForge 0.2.0, `core/compact_teacher.py`). On disk five files:
`d2t.npy d2t.pt t2d.npy t2d.pt vocab_mapping_meta.json`; Roost's manifest lies beside them.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remote.artifacts.manifest import Manifest, artifact_ref, write_manifest
from remote.errors import UsageError
from remote.protocol.jobs import ArtifactRef

FORMAT = "roost-vocabulary-mapping"
VERSION = 1
PRODUCER = "roost vocabulary 2"

META_NAME = "vocab_mapping_meta.json"
FILE_NAMES = ("d2t.npy", "d2t.pt", "t2d.npy", "t2d.pt", META_NAME)

Tensors = np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]
SaveTensors = Callable[[Path, Tensors], None]
"""Writes a vector, or several by name, as `torch.save` does; passed in because only workers may load torch."""


class Mapping(NamedTuple):
    """`d2t` int64 [D] offsets and `t2d` bool [V]."""

    d2t: "np.ndarray[Any, Any]"
    t2d: "np.ndarray[Any, Any]"

    @property
    def target_ids(self) -> "np.ndarray[Any, Any]":
        """The target's token of each draft id: int64 [D], ascending."""
        return self.d2t + np.arange(len(self.d2t))

    @classmethod
    def from_target_ids(cls, target_ids: "np.ndarray[Any, Any]", vocab_size: int) -> "Mapping":
        """The mapping whose draft ids are `target_ids` in ascending order."""
        chosen = np.sort(np.asarray(target_ids, np.int64))
        t2d = np.zeros(vocab_size, np.bool_)
        t2d[chosen] = True
        return cls(chosen - np.arange(len(chosen)), t2d)

    @classmethod
    def from_counts(cls, counts: "np.ndarray[Any, Any]", draft_vocab_size: int) -> "Mapping":
        """The `draft_vocab_size` most frequent tokens by int64 or float64 counts [V]; of equal counts the lower id, so that
        unseen tokens pad from the lowest.

        Ties by (-count, id) as in speculators 0.9.0, `train/vocab_mapping.py`. Raises UsageError when D exceeds V.
        """
        if draft_vocab_size > len(counts):
            raise UsageError(
                f"a draft vocabulary of {draft_vocab_size} does not fit a target vocabulary of {len(counts)}"
            )
        order = np.argsort(-counts, kind="stable")
        return cls.from_target_ids(order[:draft_vocab_size], len(counts))

    def coverage(self, counts: "np.ndarray[Any, Any]") -> float | None:
        """The share of counted tokens that have a draft id; None when nothing was counted."""
        total = counts.sum()
        return float(counts[self.t2d].sum() / total) if total else None


def write_mapping(
    directory: Path,
    mapping: Mapping,
    *,
    target_model: str,
    coverage: float | None,
    fingerprint: str,
    inputs: dict[str, str],
    save_tensors: SaveTensors,
) -> ArtifactRef:
    """Write the five files and then the manifest into `directory`, which exists and is empty."""
    for name, array in (("d2t", mapping.d2t), ("t2d", mapping.t2d)):
        np.save(directory / f"{name}.npy", array)
        save_tensors(directory / f"{name}.pt", array)
    meta = {
        "target_model": target_model,
        "vocab_size": len(mapping.t2d),
        "draft_vocab_size": len(mapping.d2t),
        "coverage": coverage,
        "d2t_semantics": "offset",
    }
    (directory / META_NAME).write_text(json.dumps(meta))
    return seal_mapping(directory, fingerprint=fingerprint, inputs=inputs, coverage=coverage)


def seal_mapping(directory: Path, *, fingerprint: str, inputs: dict[str, str], coverage: float | None) -> ArtifactRef:
    """Write the manifest of the five files that lie in `directory`."""
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        fingerprint=fingerprint,
        inputs=inputs,
        producer=PRODUCER,
        created_at=time.time(),
        files=[],
        properties={"coverage": coverage},
    )
    write_manifest(directory, manifest, FILE_NAMES)
    return artifact_ref("mapping", directory)
