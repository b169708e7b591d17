"""What the screen remembers: written whole or not at all, and a broken file is told and does no harm."""

import pytest

from console.config.screen_memory import ScreenMemory, memory_file, recall, remember


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_what_was_kept_comes_back() -> None:
    assert recall() == (ScreenMemory(), "")
    memory = ScreenMemory(theme="roost-light", host="lab", page="storage")
    assert remember(memory) == ""
    assert recall() == (memory, "")
    assert [path.name for path in memory_file().parent.iterdir()] == ["screen.json"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"theme": 7}', b"\xff\xfe", b'"x"'])
def test_a_broken_file_is_told_ignored_and_replaced(text) -> None:
    memory_file().parent.mkdir(parents=True)
    memory_file().write_bytes(text)
    memory, problem = recall()
    assert memory == ScreenMemory()
    assert "screen.json" in problem
    remember(ScreenMemory(page="logs"))
    assert recall() == (ScreenMemory(page="logs"), "")


def test_fields_of_another_release_are_passed_over() -> None:
    memory_file().parent.mkdir(parents=True)
    memory_file().write_text('{"page": "logs", "of_tomorrow": [1]}')
    assert recall() == (ScreenMemory(page="logs"), "")


def test_a_place_that_cannot_be_written_is_told(tmp_path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    assert "screen.json cannot be written" in remember(ScreenMemory(page="logs"))
    assert recall().memory == ScreenMemory()
