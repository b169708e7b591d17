"""The mapping: built, validated, copied; every way of being wrong is named."""

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.vocabulary.worker import save_tensors
from remote.artifacts import atomic, landing
from remote.artifacts.manifest import hash_file, read_manifest
from remote.artifacts.mapping import FILE_NAMES, Mapping, write_mapping
from remote.artifacts.mapping_conversion import read_convertible
from remote.artifacts.mapping_copy import copy_mapping
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.artifacts.torch_pickle import UnreadableTensor, read_tensor
from remote.errors import Conflict, NotFound, Precondition

KIMI = Path(__file__).parents[1] / "golden/kimi-k2.5-vocabulary"
KIMI_SIZES = {"d2t.npy": 256_128, "d2t.pt": 257_485, "t2d.npy": 163_968, "t2d.pt": 165_325}


@pytest.fixture
def kimi(tmp_path: Path) -> Path:
    directory = tmp_path / "kimi"
    directory.mkdir()
    for name in FILE_NAMES:
        shutil.copy(KIMI / name, directory / name)
    return directory


def codes(directory: Path) -> set[str]:
    return {finding.code for finding in validate_mapping(directory).findings if finding.severity == "error"}


def nothing(done: int, total: int) -> None:
    assert 0 < done <= total


def rewrite(directory: Path, stem: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    changed = change(np.load(directory / f"{stem}.npy"))
    np.save(directory / f"{stem}.npy", changed)
    torch.save(torch.from_numpy(np.ascontiguousarray(changed)), directory / f"{stem}.pt")


def test_a_mapping_of_kimi_size_is_built_as_speculators_builds_it(tmp_path: Path) -> None:
    counts = np.load(KIMI / "token_counts.npy")
    mapping = Mapping.from_counts(counts, 32_000)
    write_mapping(
        tmp_path,
        mapping,
        target_model="moonshotai/Kimi-K2.5",
        coverage=mapping.coverage(counts),
        fingerprint="f",
        inputs={},
        save_tensors=save_tensors,
    )
    for name, size in KIMI_SIZES.items():
        assert (tmp_path / name).stat().st_size == size, name
    assert np.array_equal(mapping.d2t, np.load(KIMI / "d2t.npy"))
    assert np.array_equal(mapping.t2d, np.load(KIMI / "t2d.npy"))
    assert round(mapping.coverage(counts), 6) == json.loads((KIMI / "vocab_mapping_meta.json").read_text())["coverage"]
    assert validate_mapping(tmp_path).valid
    assert torch.equal(torch.load(tmp_path / "t2d.pt", weights_only=True), torch.from_numpy(mapping.t2d))


def test_a_foreign_mapping_is_accepted_and_said_to_be_foreign(kimi: Path) -> None:
    report = validate_mapping(kimi)
    assert report.valid
    assert report.provenance == "foreign"
    assert (report.draft_vocab_size, report.target_vocab_size) == (32_000, 163_840)
    assert {file.name: file.bytes for file in report.files if file.name in KIMI_SIZES} == KIMI_SIZES


@pytest.mark.parametrize(
    ("stem", "change", "code"),
    [
        ("d2t", lambda d: d + np.arange(len(d)), "absolute-ids"),
        ("d2t", lambda d: d.astype(np.int32), "dtype-int32"),
        ("d2t", lambda d: d.astype(">i8"), "byte-order-wrong"),
        ("d2t", lambda d: np.concatenate([[-1], d[1:]]), "offset-negative"),
        ("d2t", lambda d: np.concatenate([d[:16_000], np.zeros(16_000, np.int64)]), "zero-tail"),
        ("d2t", lambda d: d + 163_840, "id-out-of-range"),
        ("d2t", lambda d: d * 0, "all-zero"),
        ("d2t", lambda d: d.byteswap(), "byte-order-wrong"),
        ("d2t", lambda d: np.concatenate([d[:500], [0], d[501:]]), "offset-decreasing"),
        ("d2t", lambda d: d.reshape(2, -1), "shape-wrong"),
        ("d2t", lambda d: d[:-1], "mask-count"),
        ("t2d", lambda t: np.roll(t, 1), "mask-mismatch"),
        ("t2d", lambda t: t.astype(np.int64), "dtype-wrong"),
        ("t2d", lambda t: t[:-1], "meta-mismatch"),
    ],
)
def test_every_way_of_being_wrong_has_its_code(kimi: Path, stem: str, change: Callable, code: str) -> None:
    if change(np.zeros(4, np.int64)).dtype.byteorder == ">":
        np.save(kimi / "d2t.npy", change(np.load(kimi / "d2t.npy")))
    else:
        rewrite(kimi, stem, change)
    assert code in codes(kimi)
    with pytest.raises(Precondition, match=code):
        read_mapping(kimi)


def test_a_missing_file_and_a_truncated_file_are_named(kimi: Path) -> None:
    (kimi / "t2d.pt").unlink()
    whole = (kimi / "d2t.npy").read_bytes()
    (kimi / "d2t.npy").write_bytes(whole[:-8])
    assert {"file-missing", "file-unreadable"} <= codes(kimi)


def test_twins_that_differ_are_refused_and_the_sound_one_is_named(kimi: Path) -> None:
    d2t = np.load(kimi / "d2t.npy")
    d2t[-1] += 1
    np.save(kimi / "d2t.npy", d2t)
    (found,) = [finding for finding in validate_mapping(kimi).findings if finding.code == "twins-differ"]
    assert "d2t.pt is the one that fits t2d.npy and t2d.pt" in found.message


def test_what_is_missing_is_restored_from_a_pair_where_there_is_one(kimi: Path) -> None:
    (kimi / "vocab_mapping_meta.json").unlink()
    (found,) = [finding for finding in validate_mapping(kimi).findings if finding.code == "file-missing"]
    assert f"convert {kimi / 'd2t.npy'}" in found.fix
    assert np.array_equal(read_convertible(kimi / "d2t.npy", None).mapping.d2t, np.load(KIMI / "d2t.npy"))


def test_a_pointer_of_git_lfs_is_named(kimi: Path) -> None:
    for name in ("d2t.npy", "t2d.pt"):
        (kimi / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 256128\n")
    messages = [finding.message for finding in validate_mapping(kimi).findings if finding.severity == "error"]
    assert [("Git LFS" in message) for message in messages] == [True, True]


def test_a_manifest_that_no_longer_fits_is_refused(kimi: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_mapping(kimi, copy, on_progress=nothing)
    meta = json.loads((copy / "vocab_mapping_meta.json").read_text())
    (copy / "vocab_mapping_meta.json").write_text(json.dumps({**meta, "coverage": 0.5}))
    assert codes(copy) == {"hash-mismatch"}


class _Malice:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_a_malicious_pickle_is_refused_and_not_run(kimi: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = io.BytesIO()
    pickle.dump(_Malice(), body, protocol=2)
    with zipfile.ZipFile(kimi / "d2t.pt", "w") as archive:
        archive.writestr("d2t/data.pkl", body.getvalue())
    with pytest.raises(UnreadableTensor, match="not executed"):
        read_tensor(kimi / "d2t.pt")
    assert "pickle-refused" in codes(kimi)
    for name, protocol in (("bare", 2), ("text", 0)):
        (kimi / "d2t.pt").write_bytes(pickle.dumps(_Malice(), protocol=protocol))
        assert "file-unreadable" in codes(kimi), name
    torch.save({"d2t": torch.zeros(3), "more": _Malice()}, kimi / "d2t.pt")
    assert "pickle-refused" in codes(kimi)
    assert not (tmp_path / "executed").exists()


def test_no_directory_is_not_an_invalid_mapping(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        validate_mapping(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFound, match="holds no mapping"):
        validate_mapping(tmp_path)


def test_a_copy_is_byte_identical_sealed_and_repeatable(kimi: Path, tmp_path: Path) -> None:
    destination = tmp_path / "deep/er/copy"
    first = copy_mapping(kimi, destination, on_progress=nothing)
    for name in FILE_NAMES:
        assert (destination / name).read_bytes() == (kimi / name).read_bytes()
    assert validate_mapping(destination).provenance == "roost"
    assert copy_mapping(kimi, destination, on_progress=nothing) == first
    assert [path.name for path in destination.parent.iterdir()] == ["copy"]


def test_a_different_destination_is_kept_unless_told_and_even_then_not_lost(kimi: Path, tmp_path: Path) -> None:
    destination = tmp_path / "copy"
    destination.mkdir()
    (destination / "precious.txt").write_text("mine")
    with pytest.raises(Conflict, match="nothing was written"):
        copy_mapping(kimi, destination, on_progress=nothing)
    with pytest.raises(Conflict, match="is no mapping; it was not replaced"):
        copy_mapping(kimi, destination, replace=True, on_progress=nothing)
    assert [path.name for path in destination.iterdir()] == ["precious.txt"]
    (destination / "d2t.npy").touch()
    copy_mapping(kimi, destination, replace=True, on_progress=nothing)
    assert validate_mapping(destination).valid
    (aside,) = tmp_path.glob("copy.replaced-*")
    assert (aside / "precious.txt").read_text() == "mine"


def test_no_copy_lands_within_another_artifact(kimi: Path, tmp_path: Path) -> None:
    copy_mapping(kimi, tmp_path / "one", on_progress=nothing)
    for within in (tmp_path / "one/nested", tmp_path / "one/deep/er", tmp_path / "else/../one/nested"):
        with pytest.raises(Conflict, match="an artifact of its own"):
            copy_mapping(kimi, within, on_progress=nothing)
    assert not (tmp_path / "one/nested").exists()


def test_a_broken_source_is_refused_before_anything_is_written(kimi: Path, tmp_path: Path) -> None:
    rewrite(kimi, "d2t", lambda d: d + np.arange(len(d)))
    with pytest.raises(Precondition, match="absolute"):
        copy_mapping(kimi, tmp_path / "copy", on_progress=nothing)
    assert not list(tmp_path.glob("copy*"))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.data())
def test_the_invariant_holds_for_any_counts(counts: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(counts)))
    mapping = Mapping.from_counts(np.array(counts), size)
    assert np.array_equal(np.flatnonzero(mapping.t2d), mapping.d2t + np.arange(size))
    expected = sorted(sorted(range(len(counts)), key=lambda token: (-counts[token], token))[:size])
    assert mapping.target_ids.tolist() == expected


def test_the_same_mapping_is_not_replaced_and_a_foreign_one_is_sealed_where_it_lies(kimi: Path, tmp_path: Path) -> None:
    destination = tmp_path / "copy"
    first = copy_mapping(kimi, destination, on_progress=nothing)
    assert copy_mapping(kimi, destination, replace=True, on_progress=nothing) == first
    (destination / "manifest.json").unlink()
    copy_mapping(kimi, destination, on_progress=nothing)
    assert validate_mapping(destination).provenance == "roost"
    assert not list(tmp_path.glob("copy.*"))


def test_the_provenance_of_a_copy_reaches_back_to_the_store(kimi: Path, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    write_mapping(
        built,
        Mapping.from_target_ids(np.array([1, 3]), 5),
        target_model="m",
        coverage=0.5,
        fingerprint="f",
        inputs={"store": "abc"},
        save_tensors=save_tensors,
    )
    copy_mapping(built, tmp_path / "copy", origin="lab:/data/mapping", on_progress=nothing)
    inputs = read_manifest(tmp_path / "copy").inputs
    assert inputs["store"] == "abc"
    assert inputs["source"] == "lab:/data/mapping"
    assert inputs["source_manifest"] == hash_file(built / "manifest.json")


class _Power(Exception):
    pass


@pytest.mark.parametrize("point", ["publish_directory", "exchange", "discard"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_replacement_that_breaks_off_leaves_the_old_or_the_new(
    kimi: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, when: str
) -> None:
    """At each step of taking a name over; the next call brings it to its end, and the old one is kept."""
    destination = tmp_path / "copy"
    destination.mkdir()
    (destination / "precious.txt").write_text("mine")
    (destination / "d2t.npy").touch()
    place = landing.Landing if point == "discard" else landing
    real = getattr(place, point)

    def break_off(*arguments: object) -> None:
        if when == "after":
            real(*arguments)
        raise _Power

    with monkeypatch.context() as patched:
        patched.setattr(place, point, break_off)
        with pytest.raises(_Power):
            copy_mapping(kimi, destination, replace=True, on_progress=nothing)
    is_old = (destination / "precious.txt").exists()
    assert is_old or validate_mapping(destination).valid
    copy_mapping(kimi, destination, replace=True, on_progress=nothing)
    assert validate_mapping(destination).valid
    kept = [path for path in tmp_path.glob("copy.replaced-*") if (path / "precious.txt").exists()]
    assert len(kept) == 1


@pytest.mark.parametrize("has_call", [True, False])
def test_names_change_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_call: bool) -> None:
    if not has_call:
        monkeypatch.setattr(atomic, "_libc", object())
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    atomic.exchange(tmp_path / "one", tmp_path / "other")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*/*")) == ["one/other", "other/one"]
