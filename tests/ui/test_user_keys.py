"""A person's own keys: they work, the help tells them, and what cannot be is told."""

import pytest

from console.ui.keymap import ACTIONS
from console.ui.user_keys import load_keys


@pytest.fixture
def write_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def write(text: str) -> None:
        (tmp_path / "roost").mkdir(exist_ok=True)
        (tmp_path / "roost/keys.toml").write_text(text)

    return write


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('rum = "x"', "no action 'rum'; 'run' is one"),
        ('run = "s"', "stop has it"),
        ('log = "w"', "toggle_wrap has it"),
        ('copy_mapping = "s"', "stop has it"),
        ('run = "ctrl+b"', "tmux's prefix"),
        ('run = "no key"', "which is no key"),
        ('run = "?"', "help_panel has it"),
    ],
)
def test_what_cannot_be_is_told(write_keys, line, words) -> None:
    write_keys(f"[keys]\n{line}\n")
    found = load_keys(ACTIONS)
    assert not found.keys
    assert words in found.problems[0]


def test_a_broken_file_changes_nothing_and_is_told(write_keys) -> None:
    write_keys("[keys\n")
    assert not load_keys(ACTIONS).keys
    assert "keys.toml" in load_keys(ACTIONS).problems[0]
    write_keys("")
    assert load_keys(ACTIONS) == ({}, [])


async def test_own_keys_work_and_the_help_tells_them(embedded_run, show, write_keys) -> None:
    write_keys('[keys]\nhelp_panel = "h"\npage_pipeline = "P"\ncopy_mapping = "Y"\nstop = "r"\n')
    async with show(embedded_run, until=180.0, size=(100, 40)) as screen:
        await screen.until_shown("step 225/400  loss")
        assert any("run has it" in note.message for note in screen.app._notifications)
        await screen.pilot.press("P")
        await screen.until_shown("▸2 Pipeline")
        await screen.pilot.press("h")
        await screen.until_shown("P       The newest run", "h       Show the keys")
        await screen.pilot.press("escape", "f1")
        await screen.until_shown("Help here", "h shows all keys")


async def test_a_changed_file_is_read_again_and_what_is_wrong_in_it_told(embedded_run, show, write_keys) -> None:
    async with show(embedded_run, until=180.0, size=(100, 40)) as screen:
        await screen.until_shown("step 225/400  loss")
        write_keys('[keys]\npage_pipeline = "P"\n')
        screen.app.reload_own_files()
        await screen.pilot.press("P")
        await screen.until_shown("▸2 Pipeline")
        write_keys('[keys]\npage_pipeline = "s"\n')
        screen.app.reload_own_files()
        await screen.until(lambda: any("stop has it" in note.message for note in screen.app._notifications))
        await screen.pilot.press("escape")
        await screen.until(lambda: screen.app.screen is screen.app._overview)
        await screen.pilot.press("2")
        await screen.until_shown("▸2 Pipeline")
