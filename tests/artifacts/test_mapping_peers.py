"""Mappings of SpecForge 0.2.0, speculators 0.8.0 and 0.9.0, ModelOpt 0.47.0 and EAGLE: read as they write them, written as they read them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from remote.artifacts.mapping import Mapping
from remote.artifacts.mapping_conversion import read_convertible, write_layout
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.protocol.mappings import MappingLayout
from tests.artifacts.small_mappings import save_tensors, write_in
from tests.conftest import Peers

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("peer_mappings.py")
MODEL = Path(__file__).parents[1] / "fixtures/tiny_target/model"
GOLDEN = Path(__file__).parents[1] / "golden/kimi-k2.5-vocabulary"
TARGET, DRAFT = 512, 96
LAYOUTS: tuple[MappingLayout, ...] = ("specforge", "speculators-0.8", "speculators-0.9", "modelopt", "eagle")


def counted() -> np.ndarray:
    """Counts [V] without ties among what occurs, for SpecForge's and EAGLE's loops break them by the order of counting."""
    counts = np.zeros(TARGET, np.int64)
    counts[np.random.default_rng(5).permutation(TARGET)[: DRAFT + 40]] = np.arange(1, DRAFT + 41)
    return counts


def run(peers: Peers, layout: MappingLayout, verb: str, *arguments: object) -> None:
    peer, _, version = layout.partition("-")
    (peers.older if version == "0.8" else peers).run(SCRIPT, verb, peer, *arguments)


def as_they_read(
    peers: Peers, layout: MappingLayout, directory: Path, draft: int, target: int
) -> dict[str, np.ndarray]:
    output = directory.parent / f"read-{directory.name}.safetensors"
    run(peers, layout, "read", directory, output, draft, target)
    return {name: tensor.numpy() for name, tensor in load_file(output).items()}


def target_ids(tensors: dict[str, np.ndarray]) -> np.ndarray:
    return tensors["d2t"] + np.arange(len(tensors["d2t"]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_trainer_writes_goes_through_ours_and_back_to_its_own_loader(
    layout: MappingLayout, peers: Peers, tmp_path: Path
) -> None:
    counts = counted()
    np.save(tmp_path / "counts.npy", counts)
    theirs, ours, back = (tmp_path / name for name in ("theirs", "ours", "back"))
    for directory in (theirs, ours, back):
        directory.mkdir()
    run(peers, layout, "write", theirs, tmp_path / "counts.npy", DRAFT, MODEL)
    report = validate_mapping(theirs)
    assert report.valid
    assert report.layout == layout
    source = read_convertible(theirs, TARGET)
    assert source.repaired == (["unsorted"] if layout == "modelopt" else [])
    assert np.array_equal(source.mapping.target_ids, Mapping.from_counts(counts, DRAFT).target_ids)
    write_layout(ours, source, "roost", target_model=str(MODEL), save_tensors=save_tensors)
    assert np.array_equal(read_mapping(ours).t2d, source.mapping.t2d)
    write_layout(back, read_convertible(ours, None), layout, target_model=str(MODEL), save_tensors=save_tensors)

    first, second = (as_they_read(peers, layout, place, DRAFT, TARGET) for place in (theirs, back))
    assert {name: (one.dtype, one.shape) for name, one in first.items()} == {
        name: (one.dtype, one.shape) for name, one in second.items()
    }
    assert np.array_equal(np.sort(target_ids(first)), target_ids(second))
    if "t2d" in first:
        assert np.array_equal(first["d2t"], second["d2t"])
        assert np.array_equal(first["t2d"], second["t2d"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mapping_of_kimi_size_is_what_their_loader_has_afterwards(
    layout: MappingLayout, peers: Peers, tmp_path: Path
) -> None:
    read = as_they_read(peers, layout, write_in(layout, tmp_path / "theirs", GOLDEN), 32_000, 163_840)
    assert np.array_equal(read["d2t"], np.load(GOLDEN / "d2t.npy"))
    assert torch.from_numpy(read["d2t"]).dtype == torch.int64
    if layout != "modelopt":
        assert np.array_equal(read["t2d"], np.load(GOLDEN / "t2d.npy"))
