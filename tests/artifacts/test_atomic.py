"""Writes are whole or absent."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remote.artifacts.atomic import publish_directory, write_atomic, write_once


def test_one_of_many_writers_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: write_once(tmp_path / "record", str(number).encode()), range(8)))
    assert won.count(True) == 1
    assert (tmp_path / "record").read_bytes() == str(won.index(True)).encode()
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


def test_a_replacement_that_cannot_be_written_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, b"old")
    with pytest.raises(TypeError):
        write_atomic(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"


def test_publishing_never_replaces_not_even_an_empty_directory(tmp_path: Path) -> None:
    part, final = tmp_path / "x.part", tmp_path / "x"
    part.mkdir()
    (part / "file").write_text("content")
    final.mkdir()
    with pytest.raises(FileExistsError):
        publish_directory(part, final)
    final.rmdir()
    publish_directory(part, final)
    assert (final / "file").read_text() == "content"
    assert not part.exists()
