"""Small mappings in every layout, for tests."""

from pathlib import Path

import numpy as np
import torch

from remote.agents.vocabulary.worker import save_tensors
from remote.artifacts.mapping import Mapping, write_mapping
from remote.artifacts.mapping_conversion import Source, write_layout
from remote.artifacts.mapping_validation import validate_mapping
from remote.protocol.mappings import MappingLayout

VOCAB_SIZE = 64
IDS = np.array([0, 1, 2, 7, 8, 20, 21, 40, 63])


def write_small(directory: Path, ids: np.ndarray = IDS, vocab_size: int = VOCAB_SIZE) -> Mapping:
    """A sealed mapping in Roost's layout."""
    directory.mkdir(parents=True)
    mapping = Mapping.from_target_ids(ids, vocab_size)
    write_mapping(
        directory,
        mapping,
        target_model="m",
        coverage=0.5,
        fingerprint="f",
        inputs={"store": "s"},
        save_tensors=save_tensors,
    )
    return mapping


def write_in(layout: MappingLayout, directory: Path, of: Path) -> Path:
    """The mapping `of` in another layout."""
    directory.mkdir(parents=True)
    report = validate_mapping(of)
    mapping = Mapping(np.load(of / "d2t.npy"), np.load(of / "t2d.npy"))
    write_layout(directory, Source(mapping, report, []), layout, target_model="m", save_tensors=save_tensors)
    return directory


def write_ranked(path: Path, ids: np.ndarray) -> None:
    """A `d2t.pt` in the order of `ids`, as ModelOpt writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(torch.from_numpy(ids - np.arange(len(ids))), path)
