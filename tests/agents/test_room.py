"""What counts as a full disk, and how the want of room is put into words."""

import errno
import os
from pathlib import Path

import pytest

from remote.agents import room
from remote.agents.room import Free, Shortage, find_shortage, full_disk_words
from remote.errors import WorkFailed


def because(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


ENOSPC, EDQUOT = (OSError(code, os.strerror(code)) for code in (errno.ENOSPC, errno.EDQUOT))


@pytest.mark.parametrize(
    "error",
    [
        ENOSPC,
        EDQUOT,
        because(WorkFailed("the verdict could not be written"), ENOSPC),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("Error while serializing: I/O error: Disk quota exceeded (os error 122)"),
        RuntimeError("write(): fd 3 failed with No space left on device"),
    ],
    ids=str,
)
def test_what_says_that_a_disk_is_full(error: Exception, tmp_path: Path) -> None:
    assert full_disk_words(error, tmp_path)


MUTE = [
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    OSError("1048576 requested and 262112 written"),
]


@pytest.mark.parametrize("error", [*MUTE, OSError(errno.EIO, "Input/output error"), ValueError("no")], ids=str)
def test_what_does_not_say_so_counts_only_when_the_disk_does(error: Exception, tmp_path: Path) -> None:
    assert full_disk_words(error, tmp_path / "not/there/yet") is None
    assert list(tmp_path.iterdir()) == []


def test_a_broken_stream_on_a_disk_with_a_quota_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> bytes:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(room.os, "urandom", refuse)
    assert [full_disk_words(error, tmp_path) for error in MUTE] == ["Disk quota exceeded"] * 2


def test_a_shortage_is_of_bytes_or_of_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_at", lambda _: Free(10 << 20, 2))
    assert find_shortage(tmp_path, 1, 3) is None, "a count that a real file proves wrong"
    monkeypatch.setattr(room, "_probe", lambda *_: "No space left on device")
    assert find_shortage(tmp_path, 10 << 20, 2) is None
    too_large, too_many = find_shortage(tmp_path, 11 << 20, 2), find_shortage(tmp_path, 10 << 20, 3)
    assert too_large is not None
    assert too_many is not None
    assert too_large.reason == f"no room to write {tmp_path}: 11.0 MiB needed, 10.0 MiB free, 2 inodes free"
    assert too_many.reason == f"no inodes left to write {tmp_path}: 3 needed, 2 inodes free, 10.0 MiB free"


def test_a_disk_that_counts_no_inodes_lacks_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_at", lambda _: Free(1, None))
    assert find_shortage(tmp_path, 1, 99) is None


def test_a_quota_is_named_where_the_disk_has_room() -> None:
    refused = Shortage(Path("/data/x"), Free(5 << 30, None), 100, 1, "Disk quota exceeded")
    assert refused.reason == (
        "no room to write /data/x: Disk quota exceeded, though the disk has 5.0 GiB free (is there a quota?)"
    )
