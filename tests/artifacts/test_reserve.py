"""The reserve of a root: real blocks, given up a piece at a time, made again, by anybody at any time."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from remote.artifacts import reserve

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def _size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reserve.SIZE_VARIABLE, str(SIZE))


def pieces(root: Path) -> list[Path]:
    return sorted((root / reserve.NAME).iterdir())


def failing(code: int, times: int) -> Callable[[], str]:
    left = [times]

    def write() -> str:
        if left[0] > 0:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return "written"

    return write


def test_it_is_made_of_real_blocks(tmp_path: Path) -> None:
    reserve.keep(tmp_path)
    assert len(pieces(tmp_path)) == reserve.PIECES
    assert sum(piece.stat().st_blocks for piece in pieces(tmp_path)) * 512 >= SIZE


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_costs_as_many_pieces_as_it_takes(tmp_path: Path, code: int) -> None:
    reserve.keep(tmp_path)
    assert reserve.insist(tmp_path, failing(code, 3)) == "written"
    assert len(pieces(tmp_path)) == reserve.PIECES - 3
    reserve.keep(tmp_path)
    assert len(pieces(tmp_path)) == reserve.PIECES


def test_what_is_spared_stays_and_the_error_is_the_disk_s(tmp_path: Path) -> None:
    reserve.keep(tmp_path)
    with pytest.raises(OSError, match="No space left") as raised:
        reserve.insist(tmp_path, failing(errno.ENOSPC, 99), spare=4)
    assert reserve.is_full(raised.value)
    assert len(pieces(tmp_path)) == 4


def test_another_error_costs_nothing(tmp_path: Path) -> None:
    reserve.keep(tmp_path)
    with pytest.raises(PermissionError):
        reserve.insist(tmp_path, failing(errno.EACCES, 1))
    assert len(pieces(tmp_path)) == reserve.PIECES


@pytest.mark.parametrize(("code", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_quota_is_a_full_disk(code: int, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match=os.strerror(code)) as raised:
        os.write(1, b"")
    assert reserve.is_full(raised.value) is full


def test_a_piece_that_a_crash_left_half_made_is_made_whole(tmp_path: Path) -> None:
    reserve.keep(tmp_path)
    os.truncate(pieces(tmp_path)[3], 1)
    reserve.keep(tmp_path)
    assert {piece.stat().st_size for piece in pieces(tmp_path)} == {SIZE // reserve.PIECES}


def test_none_is_made_when_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reserve.SIZE_VARIABLE, "0")
    reserve.keep(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not reserve.give_up(tmp_path)


def test_many_hands_at_once(tmp_path: Path) -> None:
    """Every piece is given up by one hand only, whoever makes new ones meanwhile; nothing else is ever left there."""
    reserve.keep(tmp_path)
    given: list[bool] = []

    def give() -> None:
        given.extend(reserve.give_up(tmp_path) for _ in range(reserve.PIECES))

    hands = [threading.Thread(target=give) for _ in range(4)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join()
    assert given.count(True) == reserve.PIECES
    makers = [threading.Thread(target=reserve.keep, args=(tmp_path,)) for _ in range(4)]
    for hand in makers:
        hand.start()
    for hand in makers:
        hand.join()
    assert [piece.stat().st_size for piece in pieces(tmp_path)] == [SIZE // reserve.PIECES] * reserve.PIECES
