"""Every trainer's layout: found by its names, named when it is another, converted back and forth."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch

from remote.artifacts.manifest import read_manifest, write_manifest
from remote.artifacts.mapping_conversion import read_convertible, write_layout
from remote.artifacts.mapping_copy import copy_mapping
from remote.artifacts.mapping_layouts import LAYOUTS, find_mapping
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.errors import NotFound, Precondition
from tests.artifacts.small_mappings import IDS, VOCAB_SIZE, save_tensors, write_in, write_ranked, write_small


def codes(path: Path, severity: str = "error") -> set[str]:
    return {finding.code for finding in validate_mapping(path).findings if finding.severity == severity}


def without_manifest(directory: Path) -> Path:
    (directory / "manifest.json").unlink()
    return directory


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sealed", [True, False])
def test_a_layout_is_known_by_its_manifest_and_by_its_names(layout, sealed: bool, tmp_path: Path) -> None:
    write_small(tmp_path / "roost")
    place = write_in(layout, tmp_path / "other", tmp_path / "roost")
    if not sealed:
        without_manifest(place)
    report = validate_mapping(place)
    assert report.valid
    assert report.layout == layout
    assert report.draft_vocab_size == len(IDS)
    if layout != "roost":
        assert f"layout-{layout}" in codes(place, "info")
        with pytest.raises(Precondition, match="layout"):
            read_mapping(place)
        with pytest.raises(Precondition, match="layout"):
            copy_mapping(place, tmp_path / "copy", on_progress=lambda *_: None)


@pytest.mark.parametrize("through", LAYOUTS)
@pytest.mark.parametrize("back", LAYOUTS)
def test_a_mapping_comes_back_from_every_layout_the_same(through, back, tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "roost")
    write_in(through, tmp_path / "through", tmp_path / "roost")
    source = read_convertible(tmp_path / "through", VOCAB_SIZE)
    assert source.repaired == []
    (tmp_path / "back").mkdir()
    write_layout(tmp_path / "back", source, back, target_model="m", save_tensors=save_tensors)
    again = read_convertible(tmp_path / "back", VOCAB_SIZE).mapping
    assert np.array_equal(again.d2t, mapping.d2t)
    assert np.array_equal(again.t2d, mapping.t2d)


def test_a_single_file_is_a_mapping_too(tmp_path: Path) -> None:
    write_small(tmp_path / "roost")
    cache = write_in("specforge", tmp_path / "cache", tmp_path / "roost") / "vocab_mapping.pt"
    cache.rename(tmp_path / "cache/0123abcd.pt")
    assert validate_mapping(tmp_path / "cache/0123abcd.pt").layout == "specforge"
    without_manifest(tmp_path / "cache")
    assert validate_mapping(tmp_path / "cache").layout == "specforge"
    shutil.copy(tmp_path / "cache/0123abcd.pt", tmp_path / "cache/4567.pt")
    with pytest.raises(Precondition, match=r"2 \.pt files"):
        validate_mapping(tmp_path / "cache")
    sized = write_in("speculators-0.9", tmp_path / "sized", tmp_path / "roost") / f"d2t-{len(IDS)}.npy"
    assert validate_mapping(sized).valid
    assert find_mapping(write_in("modelopt", tmp_path / "ranked", tmp_path / "roost") / "d2t.pt").layout == "modelopt"
    with pytest.raises(NotFound):
        validate_mapping(tmp_path / "nothing.pt")


def test_the_unsorted_file_of_modelopt_is_named_and_put_in_order(tmp_path: Path) -> None:
    ranked = IDS[[3, 0, 8, 1, 2, 7, 4, 5, 6]]
    write_ranked(tmp_path / "ranked/d2t.pt", ranked)
    assert codes(tmp_path / "ranked") == set()
    assert {"unsorted", "mask-missing"} <= codes(tmp_path / "ranked", "warning")
    with pytest.raises(Precondition, match="how many tokens"):
        read_convertible(tmp_path / "ranked", None)
    with pytest.raises(Precondition, match="names token 63"):
        read_convertible(tmp_path / "ranked", 60)
    source = read_convertible(tmp_path / "ranked", VOCAB_SIZE)
    assert source.repaired == ["unsorted"]
    assert source.mapping.target_ids.tolist() == IDS.tolist()


def test_a_sealed_file_of_modelopt_says_how_many_tokens_the_target_has(tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "roost")
    place = write_in("modelopt", tmp_path / "m", tmp_path / "roost")
    assert validate_mapping(place).target_vocab_size == VOCAB_SIZE
    assert np.array_equal(read_convertible(place, None).mapping.t2d, mapping.t2d)
    with pytest.raises(Precondition, match="is for a target of 64 tokens"):
        read_convertible(place, VOCAB_SIZE + 1)


def test_the_order_of_modelopt_beside_a_mask_is_an_error(tmp_path: Path) -> None:
    write_small(tmp_path / "m")
    ranked = IDS[::-1].copy()
    np.save(tmp_path / "m/d2t.npy", ranked - np.arange(len(IDS)))
    write_ranked(tmp_path / "m/d2t.pt", ranked)
    without_manifest(tmp_path / "m")
    assert codes(tmp_path / "m") == {"unsorted"}
    assert read_convertible(tmp_path / "m", None).mapping.target_ids.tolist() == IDS.tolist()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: d + np.arange(len(d)), "absolute-ids"),
        (lambda d: d.astype(np.int32), "dtype-int32"),
        (lambda d: d.astype(">i8"), "byte-order-wrong"),
        (lambda d: d.byteswap(), "byte-order-wrong"),
    ],
)
def test_what_lies_there_wrongly_is_put_right_on_the_way(change, code: str, tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "m")
    place = without_manifest(write_in("speculators-0.8", tmp_path / "s", tmp_path / "m"))
    np.save(place / "d2t.npy", change(mapping.d2t))
    assert codes(place) == {code}
    source = read_convertible(place, None)
    assert source.repaired == [code]
    assert np.array_equal(source.mapping.d2t, mapping.d2t)


def test_what_leaves_a_doubt_is_not_converted(tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "m")
    place = without_manifest(write_in("speculators-0.8", tmp_path / "s", tmp_path / "m"))
    np.save(place / "t2d.npy", np.roll(mapping.t2d, 1))
    with pytest.raises(Precondition, match="mask-mismatch"):
        read_convertible(place, None)


def test_a_name_that_says_another_size_is_refused_and_two_sizes_are_asked_about(tmp_path: Path) -> None:
    write_small(tmp_path / "m")
    place = without_manifest(write_in("speculators-0.9", tmp_path / "s", tmp_path / "m"))
    for stem in ("d2t", "t2d"):
        (place / f"{stem}-{len(IDS)}.npy").rename(place / f"{stem}-10.npy")
    assert codes(place) == {"name-mismatch"}
    np.save(place / "d2t-5.npy", np.zeros(5, np.int64))
    with pytest.raises(Precondition, match="5, 10 tokens"):
        validate_mapping(place)


def test_column_major_files_are_named_and_harmless(tmp_path: Path) -> None:
    write_small(tmp_path / "m")
    content = (tmp_path / "m/d2t.npy").read_bytes()
    (tmp_path / "m/d2t.npy").write_bytes(content.replace(b"'fortran_order': False", b"'fortran_order': True "))
    without_manifest(tmp_path / "m")
    assert validate_mapping(tmp_path / "m").valid
    assert codes(tmp_path / "m", "warning") == {"fortran-order"}


def test_swapped_bytes_and_broken_off_writes_are_named(tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "m")
    place = without_manifest(write_in("speculators-0.8", tmp_path / "s", tmp_path / "m"))
    np.save(place / "d2t.npy", mapping.d2t.byteswap())
    assert codes(place) == {"byte-order-wrong"}
    np.save(place / "d2t.npy", np.concatenate([mapping.d2t[:5], np.zeros(4, np.int64)]))
    assert "zero-tail" in codes(place)
    np.save(place / "d2t.npy", mapping.d2t)
    np.save(place / "t2d.npy", np.concatenate([mapping.t2d[:30], np.zeros(34, np.bool_)]))
    assert codes(place) == {"zero-tail"}
    np.save(place / "t2d.npy", mapping.t2d)
    with (place / "t2d.npy").open("ab") as file:
        file.write(b"\0")
    assert codes(place) == {"trailing-bytes"}


def test_ids_without_a_mask_are_told_from_offsets_where_that_can_be_proved(tmp_path: Path) -> None:
    ids = np.array([5, 3, 4, 1])
    torch.save(torch.from_numpy(ids), tmp_path / "d2t.pt")
    assert codes(tmp_path) == {"absolute-ids"}
    torch.save(torch.from_numpy(np.array([3, 5, 9])), tmp_path / "d2t.pt")
    assert "absolute-suspected" in codes(tmp_path, "warning")
    assert read_convertible(tmp_path, 12).mapping.target_ids.tolist() == [3, 6, 11]
    source = read_convertible(tmp_path, 10)  # as offsets they would name token 11
    assert (source.repaired, source.mapping.target_ids.tolist()) == (["absolute-ids"], [3, 5, 9])
    torch.save(torch.from_numpy(np.array([3, 2, 2])), tmp_path / "d2t.pt")
    assert codes(tmp_path) == {"id-twice"}
    torch.save(torch.zeros(3, dtype=torch.int64), tmp_path / "d2t.pt")
    assert "all-zero" in codes(tmp_path, "warning")


def test_metadata_that_is_none_is_refused(tmp_path: Path) -> None:
    write_small(tmp_path / "m")
    without_manifest(tmp_path / "m")
    meta = json.loads((tmp_path / "m/vocab_mapping_meta.json").read_text())
    for wrong in ({}, {**meta, "coverage": 1.5}, {**meta, "vocab_size": True}, {**meta, "d2t_semantics": "absolute"}):
        (tmp_path / "m/vocab_mapping_meta.json").write_text(json.dumps(wrong))
        assert codes(tmp_path / "m") == {"meta-mismatch"}


def write_drafter(directory: Path, tensors: dict[str, torch.Tensor], name: str = "model.safetensors") -> Path:
    directory.mkdir(exist_ok=True)
    safetensors.torch.save_file({"fc.weight": torch.ones(2, 2, dtype=torch.bfloat16), **tensors}, directory / name)
    return directory


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_drafter_gives_its_own_mapping(prefix: str, tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "roost")
    tensors = {"d2t": torch.from_numpy(mapping.d2t), "t2d": torch.from_numpy(mapping.t2d)}
    drafter = write_drafter(tmp_path / "drafter", {prefix + name: tensor for name, tensor in tensors.items()})
    for path in (drafter, drafter / "model.safetensors"):
        report = validate_mapping(path)
        assert (report.valid, report.layout, report.target_vocab_size) == (True, "drafter", VOCAB_SIZE)
    source = read_convertible(drafter, None)
    (tmp_path / "back").mkdir()
    write_layout(tmp_path / "back", source, "roost", target_model="m", save_tensors=save_tensors)
    again = read_mapping(tmp_path / "back")
    assert np.array_equal(again.d2t, mapping.d2t)
    assert np.array_equal(again.t2d, mapping.t2d)


def test_a_drafter_of_a_run_gives_its_mapping_too(tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "roost")
    tensors = {"d2t": torch.from_numpy(mapping.d2t), "t2d": torch.from_numpy(mapping.t2d)}
    drafter = write_drafter(tmp_path / "drafter", tensors)
    manifest = read_manifest(tmp_path / "roost")
    write_manifest(drafter, msgspec.structs.replace(manifest, format="roost-drafter", files=[]), ["model.safetensors"])
    report = validate_mapping(drafter)
    assert (report.valid, report.layout) == (True, "drafter")


def test_the_mapping_of_a_drafter_in_several_files_is_found(tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "roost")
    drafter = write_drafter(tmp_path / "drafter", {"d2t": torch.from_numpy(mapping.d2t)}, "model-1.safetensors")
    write_drafter(drafter, {"t2d": torch.from_numpy(mapping.t2d)}, "model-2.safetensors")
    assert np.array_equal(read_convertible(drafter, None).mapping.t2d, mapping.t2d)


def test_a_drafter_with_offsets_alone_needs_its_target_named(tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "roost")
    drafter = write_drafter(tmp_path / "drafter", {"d2t": torch.from_numpy(mapping.d2t)})
    with pytest.raises(Precondition, match="how many tokens"):
        read_convertible(drafter, None)
    assert np.array_equal(read_convertible(drafter, VOCAB_SIZE).mapping.t2d, mapping.t2d)


def test_a_drafter_whose_offsets_are_ids_is_told(tmp_path: Path) -> None:
    mapping = write_small(tmp_path / "roost")
    tensors = {"d2t": torch.from_numpy(mapping.target_ids.copy()), "t2d": torch.from_numpy(mapping.t2d)}
    assert "absolute-ids" in codes(write_drafter(tmp_path / "drafter", tensors))


def test_a_drafter_without_a_mapping_has_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no tensor of its safetensors is a d2t"):
        find_mapping(write_drafter(tmp_path / "drafter", {}))
    damaged = tmp_path / "drafter/model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:40])
    with pytest.raises(Precondition, match="no whole safetensors file"):
        find_mapping(tmp_path / "drafter")
