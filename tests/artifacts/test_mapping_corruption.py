"""Whatever one thing goes wrong with a mapping's files: it is found, or it changes nothing that anybody reads."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.artifacts.mapping import FILE_NAMES, Mapping
from remote.artifacts.mapping_conversion import read_convertible
from remote.artifacts.mapping_layouts import find_mapping
from remote.artifacts.mapping_validation import examine, read_mapping
from remote.errors import NotFound, Precondition
from remote.protocol.mappings import MappingLayout
from tests.artifacts.small_mappings import write_in, write_small

mappings = st.integers(2, 150).flatmap(
    lambda vocab: st.tuples(st.just(vocab), st.sets(st.integers(0, vocab - 1), min_size=1, max_size=vocab))
)


def damage(path: Path, data: st.DataObject, others: list[bytes]) -> str:
    """Do one thing to a file; what it was."""
    content = path.read_bytes()
    kind = data.draw(st.sampled_from(["byte", "bit", "cut", "more", "gone", "empty", "other", "zeros"]))
    place = data.draw(st.integers(0, 1 << 20)) % len(content)  # manifests differ in length from time to time
    match kind:
        case "byte":
            path.write_bytes(content[:place] + bytes([data.draw(st.integers(0, 255))]) + content[place + 1 :])
        case "bit":
            flipped = content[place] ^ (1 << data.draw(st.integers(0, 7)))
            path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        case "cut":
            path.write_bytes(content[:place])
        case "more":
            path.write_bytes(content + data.draw(st.binary(min_size=1, max_size=40)))
        case "gone":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "other":
            path.write_bytes(others[data.draw(st.integers(0, len(others) - 1))])
        case "zeros":
            path.write_bytes(content[:place] + bytes(len(content) - place))
    return kind


def same(tensors: dict[str, np.ndarray[Any, Any]], wanted: np.ndarray) -> bool:
    return all(np.array_equal(tensor, wanted) for tensor in tensors.values())


def torch_reads(path: Path) -> np.ndarray | None:
    try:
        return torch.load(path, weights_only=True).numpy()
    except Exception:  # noqa: BLE001 - any loud failure will do
        return None


def check_harmless(directory: Path, mapping: Mapping) -> None:
    """What is called valid holds the same values, for us and for torch, or torch refuses it aloud."""
    report, arrays = examine(find_mapping(directory), directory)
    assert report.layout == "roost"
    assert same(arrays.offsets, mapping.d2t)
    assert same(arrays.masks, mapping.t2d)
    read = read_mapping(directory)
    assert np.array_equal(read.target_ids, mapping.target_ids)
    for name, wanted in (("d2t.pt", mapping.d2t), ("t2d.pt", mapping.t2d)):
        seen = torch_reads(directory / name)
        assert seen is None or np.array_equal(seen, wanted)


@settings(max_examples=150)
@pytest.mark.parametrize("sealed", [True, False])
@given(shape=mappings, data=st.data())
def test_any_single_corruption_is_found_or_changes_nothing(
    sealed: bool, shape: tuple[int, set[int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    vocab, ids = shape
    root = tmp_path_factory.mktemp("m")
    directory = root / "mapping"
    mapping = write_small(directory, np.array(sorted(ids)), vocab)
    if not sealed:
        (directory / "manifest.json").unlink()
    names = [*FILE_NAMES, *(["manifest.json"] if sealed else [])]
    name = data.draw(st.sampled_from(names))
    others = [(directory / other).read_bytes() for other in names if other != name]
    damage(directory / name, data, others)
    try:
        report, _ = examine(find_mapping(directory), directory)
    except (NotFound, Precondition):
        pass
    else:
        if report.valid:
            check_harmless(directory, mapping)
    shutil.rmtree(root)


@settings(max_examples=100)
@pytest.mark.parametrize("stem", ["d2t", "t2d"])
@given(shape=mappings, data=st.data())
def test_any_other_values_of_one_tensor_are_found(
    stem: str, shape: tuple[int, set[int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also in the layout that has each tensor once, where nothing but the other tensor can tell."""
    vocab, ids = shape
    root = tmp_path_factory.mktemp("m")
    mapping = write_small(root / "roost", np.array(sorted(ids)), vocab)
    place = write_in("speculators-0.8", root / "pair", root / "roost")
    (place / "manifest.json").unlink()
    changed = (mapping.d2t if stem == "d2t" else mapping.t2d).copy()
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] = (
        data.draw(st.integers(-(2**62), 2**62).filter(lambda n: n != changed[at])) if stem == "d2t" else not changed[at]
    )
    np.save(place / f"{stem}.npy", changed)
    report, _ = examine(find_mapping(place), place)
    assert not report.valid
    assert all(finding.fix for finding in report.findings)
    shutil.rmtree(root)


OFFSETS = {
    "int32": lambda a: a.astype(np.int32),
    "int16": lambda a: a.astype(np.int16),
    "uint64": lambda a: a.astype(np.uint64),
    "float64": lambda a: a.astype(np.float64),
    "big-endian": lambda a: a.astype(">i8"),
    "swapped": lambda a: a.byteswap(),
    "absolute": lambda a: a + np.arange(len(a)),
    "reversed": lambda a: a[::-1].copy(),
    "by frequency": lambda a: (a + np.arange(len(a)))[::-1] - np.arange(len(a)),
    "two rows": lambda a: np.stack([a, a]),
    "column": lambda a: np.asfortranarray(a[:, None]),
    "cut": lambda a: a[:-1],
    "twice": lambda a: np.concatenate([a, a]),
    "zero": lambda a: a * 0,
}
MASKS = {
    "uint8": lambda a: a.astype(np.uint8),
    "int64": lambda a: a.astype(np.int64),
    "inverted": lambda a: ~a,
    "reversed": lambda a: a[::-1].copy(),
    "ids": np.flatnonzero,
    "cut": lambda a: a[:-1],
    "longer": lambda a: np.concatenate([a, a[:1]]),
    "column": lambda a: np.asfortranarray(a[:, None]),
    "zero": lambda a: a & False,
    "one": lambda a: a | True,
}


@settings(max_examples=50)
@pytest.mark.parametrize("layout", ["roost", "speculators-0.8", "specforge"])
@given(shape=mappings, data=st.data())
def test_a_tensor_in_any_other_form_is_found_and_converted_to_the_same_tokens_or_not_at_all(
    layout: MappingLayout, shape: tuple[int, set[int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Another type, byte order, order or meaning, in all files of the tensor or in one of them."""
    vocab, ids = shape
    root = tmp_path_factory.mktemp("m")
    mapping = write_small(root / "roost", np.array(sorted(ids)), vocab)
    place = write_in(layout, root / "place", root / "roost")
    (place / "manifest.json").unlink()
    tensors = mapping._asdict()
    stem = data.draw(st.sampled_from(["d2t", "t2d"]))
    tensors[stem] = np.asarray(
        data.draw(st.sampled_from(list((OFFSETS if stem == "d2t" else MASKS).values())))(tensors[stem])
    )
    written = [path for path in place.iterdir() if path.stem == stem or layout == "specforge"]
    for path in written if data.draw(st.booleans()) else written[:1]:
        if path.suffix == ".npy":
            np.save(path, tensors[stem])
        elif tensors[stem].dtype.isnative:
            content = {name: torch.from_numpy(one) for name, one in tensors.items()}
            torch.save(content if layout == "specforge" else content[stem], path)
    report, arrays = examine(find_mapping(place), place)
    # Without the metadata that Roost's layout has, only the target says how many tokens it has.
    is_of_another_size = layout != "roost" and arrays.t2d is not None and len(arrays.t2d) != vocab
    if report.valid:
        assert same(arrays.offsets, mapping.d2t)
        assert is_of_another_size or same(arrays.masks, mapping.t2d)
    try:
        converted = read_convertible(place, vocab).mapping
    except Precondition:
        assert is_of_another_size or not report.valid
    else:
        assert np.array_equal(converted.d2t, mapping.d2t)
        assert np.array_equal(converted.t2d, mapping.t2d)
    shutil.rmtree(root)
