"""Copying a tree: what arrives is what left, and everything else is refused in words."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.artifacts import safe_copy
from remote.artifacts.landing import Busy, land
from remote.artifacts.manifest import hash_file
from remote.artifacts.safe_copy import copy_tree
from remote.artifacts.tree_scan import scan
from remote.errors import Conflict, NotFound, Precondition, RoostError, UsageError, WorkFailed
from tests.artifacts.trees import content, make_artifact, make_tree


def nothing(done: int, total: int) -> None:
    """No progress is looked at."""


def copy(source: Path, destination: Path) -> dict[str, str]:
    return copy_tree(source, destination, on_progress=nothing)


name_bytes = st.binary(min_size=1, max_size=20).filter(lambda b: b not in (b".", b"..") and not {0, 47} & set(b))
names = st.lists(name_bytes, min_size=1, max_size=6).map(lambda parts: "/".join(map(os.fsdecode, parts)))
files = st.dictionaries(names, st.binary(max_size=200), max_size=8).filter(
    lambda tree: not any(a != b and b.startswith(a + "/") for a in tree for b in tree)
)


@settings(max_examples=60, deadline=None)
@given(files)
def test_a_copy_equals_its_source_whatever_the_names(tree: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "source")
        source.mkdir()
        make_tree(source, tree)
        copy(source, Path(place, "copy"))
        assert content(Path(place, "copy")) == content(source)
        assert sorted(os.listdir(place)) == ["copy", "source"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    files = {"a/weights": os.urandom(3_000_000), "a/b/empty": b"", "config.json": b"{}"}
    return make_artifact(tmp_path / "source", files)


def test_the_same_again_changes_nothing_and_never_nests(source: Path, tmp_path: Path) -> None:
    first = copy(source, tmp_path / "copy")
    inode = (tmp_path / "copy").stat().st_ino
    assert copy(source, tmp_path / "copy") == first == {name: hash_file(source / name) for name in first}
    assert (tmp_path / "copy").stat().st_ino == inode
    assert content(tmp_path / "copy") == content(source)


@pytest.mark.parametrize("there", ["directory", "other", "file", "dangling"])
def test_what_is_there_is_never_replaced(source: Path, tmp_path: Path, there: str) -> None:
    destination = tmp_path / "copy"
    match there:
        case "directory":
            destination.mkdir()
        case "other":
            make_tree(destination, {"a/weights": b"x", "mine": b"1"})
        case "file":
            destination.write_bytes(b"mine")
        case _:
            destination.symlink_to(tmp_path / "nowhere")
    before = content(tmp_path)
    with pytest.raises(Conflict, match="exists and differs"):
        copy(source, destination)
    assert content(tmp_path) == before


def test_the_manifest_comes_last(source: Path) -> None:
    assert [file.name for file in scan(source, last="manifest.json").files][-1] == "manifest.json"


def test_holes_and_second_names_are_kept(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"one": b"1" * 5000})
    os.link(source / "one", source / "two")
    with (source / "sparse").open("wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
        file.truncate((64 << 20) + 5_000_000)
    os.chmod(source / "one", 0o755)
    copy(source, tmp_path / "copy")
    assert content(tmp_path / "copy") == content(source)
    assert (tmp_path / "copy/one").stat().st_ino == (tmp_path / "copy/two").stat().st_ino
    assert (tmp_path / "copy/one").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "copy/sparse").stat().st_blocks * 512 < 8 << 20


def test_links_inside_are_kept(source: Path, tmp_path: Path) -> None:
    (source / "latest").symlink_to("a")
    (source / "a/up").symlink_to("../config.json")
    copy(source, tmp_path / "copy")
    assert content(tmp_path / "copy") == content(source)


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside"])
def test_links_that_lead_out_are_refused(source: Path, tmp_path: Path, target: str) -> None:
    (source / "leak").symlink_to(target)
    with pytest.raises(Precondition, match="leads out of it"):
        copy(source, tmp_path / "copy")
    assert sorted(os.listdir(tmp_path)) == ["source"]


def test_pipes_are_refused(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    with pytest.raises(Precondition, match="'pipe' is no file"):
        copy(source, tmp_path / "copy")


def test_a_copy_into_itself_is_refused(source: Path) -> None:
    for destination in (source, source / "inside"):
        with pytest.raises(UsageError, match="lies in"):
            copy(source, destination)


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        copy(tmp_path / "nothing", tmp_path / "copy")


@pytest.mark.parametrize("change", ["grow", "rewrite", "add", "remove"])
def test_a_source_that_changes_under_the_copy_is_noticed(source: Path, tmp_path: Path, change: str) -> None:
    def interfere(done: int, total: int) -> None:
        match change:
            case "grow":
                with (source / "a/weights").open("ab") as file:
                    file.write(b"more")
            case "rewrite":
                (source / "a/weights").write_bytes(os.urandom(3_000_000))
            case "add":
                (source / f"new-{done}").touch()
            case _:
                (source / "config.json").unlink(missing_ok=True)

    with pytest.raises((WorkFailed, FileNotFoundError)):
        copy_tree(source, tmp_path / "copy", on_progress=interfere)
    assert not (tmp_path / "copy").exists()


def broken_off(source: Path, destination: Path) -> Path:
    """A copy that an error ends when something has arrived; the part that it leaves."""

    def end(done: int, total: int) -> None:
        if done > 1_000_000:
            raise OSError("unplugged")

    with pytest.raises(OSError, match="unplugged"):
        copy_tree(source, destination, on_progress=end)
    assert not destination.exists()
    (part,) = destination.parent.glob("*.part")
    return part


def test_a_copy_goes_on_where_it_broke_off(source: Path, tmp_path: Path) -> None:
    part = broken_off(source, tmp_path / "copy")
    arrived = [path for path in (part / "tree").rglob("*") if path.is_file()]
    inodes = {path.name: path.stat().st_ino for path in arrived}
    assert inodes
    copy(source, tmp_path / "copy")
    assert content(tmp_path / "copy") == content(source)
    copied = {path.name: path.stat().st_ino for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert inodes.items() <= copied.items()
    assert sorted(os.listdir(tmp_path)) == ["copy", "source"]


def test_what_was_damaged_in_the_meantime_is_copied_again(source: Path, tmp_path: Path) -> None:
    tree = broken_off(source, tmp_path / "copy") / "tree"
    for path in list(tree.rglob("*")):
        if path.is_file() and path.stat().st_size:
            path.chmod(0o644)
            path.write_bytes(bytes(path.stat().st_size))
    (tree / "stowaway").write_bytes(b"x")
    (tree / "config.json").unlink(missing_ok=True)
    (tree / "config.json").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_bytes(b"mine")
    copy(source, tmp_path / "copy")
    assert content(tmp_path / "copy") == content(source)
    assert (tmp_path / "victim").read_bytes() == b"mine"


def test_another_source_does_not_go_on_in_the_part(source: Path, tmp_path: Path) -> None:
    broken_off(source, tmp_path / "copy")
    (source / "config.json").write_bytes(b"{ }")
    copy(source, tmp_path / "copy")
    assert content(tmp_path / "copy") == content(source)


def test_the_second_of_two_copies_is_told(source: Path, tmp_path: Path) -> None:
    with land(tmp_path / "copy", scan(source, last="manifest.json").identity), pytest.raises(Busy, match="right now"):
        copy(source, tmp_path / "copy")
    copy(source, tmp_path / "copy")


def test_a_name_taken_at_the_last_moment_is_left_alone(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = safe_copy.copy_files

    def and_then_somebody_else(*arguments: object) -> object:
        hashes = copied(*arguments)
        (tmp_path / "copy").mkdir()
        return hashes

    monkeypatch.setattr(safe_copy, "copy_files", and_then_somebody_else)
    with pytest.raises(Conflict, match="appeared while copying"):
        copy(source, tmp_path / "copy")
    assert content(tmp_path / "copy") == {}


def test_too_little_room_is_said_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_files, f_favail = 10, 4096, disk.f_files, disk.f_favail

    monkeypatch.setattr("remote.artifacts.landing.os.statvfs", lambda path: Full)
    missing = scan(source, last="manifest.json").size - 40960
    with pytest.raises(RoostError, match=f"{missing} are missing"):
        copy(source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
