"""Copies reach a terminal as it takes them, tmux hands them on, and what is too much goes into a file of one's own."""

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from console.ui.clipboard import MOST_BYTES, Tmux, copy_text, copy_through_tmux, osc52, through_tmux

NOTHING_AROUND: dict[str, str] = {}


async def copied(text: str, environment=NOTHING_AROUND, *, in_browser=False, to_file=False):
    return await copy_text(text, "a-job", environment, in_browser=in_browser, to_file=to_file)


async def test_a_terminal_is_handed_the_text_by_osc_52() -> None:
    sequence, words = await copied("käse\n")
    assert words == "to the terminal's clipboard (OSC 52)"
    assert base64.b64decode(sequence.removeprefix("\x1b]52;c;").removesuffix("\a")).decode() == "käse\n"


@pytest.mark.parametrize(
    ("text", "environment", "in_browser", "reason"),
    [
        ("x" * (MOST_BYTES + 1), {}, False, "73.2 KiB are more than the 73.2 KiB that terminals take"),
        ("x", {"STY": "1.pts"}, False, "GNU screen"),
        ("x", {}, True, "browser"),
        ("x", {"TMUX": "/nobody/there,1,0", "PATH": ""}, False, "set -g set-clipboard on"),
    ],
)
async def test_what_cannot_go_there_is_a_file_of_ones_own_and_says_why(
    text, environment, in_browser, reason, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sequence, words = await copied(text, environment, in_browser=in_browser)
    assert not sequence
    assert reason in words
    path = Path(words.removeprefix("into ").split(", for ")[0])
    assert path.read_text() == text
    assert path.name.startswith("a-job-")
    assert path.suffix == ".txt"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_as_much_as_terminals_take_is_no_file_and_a_file_can_be_asked_for() -> None:
    assert (await copied("x" * MOST_BYTES)).sequence
    assert len(osc52("x" * MOST_BYTES)) <= 100_000
    assert (await copied("x", to_file=True)).words.startswith("into /")


async def test_a_tmux_that_passes_sequences_on_gets_one_that_it_does_not_read() -> None:
    found = await copy_through_tmux("x", Tmux("off", "1"))
    assert found.sequence == through_tmux(osc52("x")) == "\x1bPtmux;\x1b\x1b]52;c;eA==\a\x1b\\"
    assert (await copy_through_tmux("x", Tmux("off", "0"))).words == ""


@pytest.fixture
def tmux(tmp_path, monkeypatch):
    """A tmux of its own, which is the one around the screen; what it is told to do, and what that prints."""
    socket = tmp_path / "s"

    def do(*words: str) -> str:
        command = ["tmux", "-S", str(socket), "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    do("new-session", "-d", "-x", "80", "-y", "24")
    monkeypatch.setenv("TMUX", f"{socket},1,0")
    yield do
    do("kill-server")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_a_real_tmux_keeps_the_copy_in_its_buffer_or_passes_it_on_as_its_options_say(tmux) -> None:
    sequence, words = await copied("two\nlines\n", os.environ)
    assert not sequence
    assert words.startswith("to tmux")
    assert tmux("show-buffer") == "two\nlines\n"
    tmux("set", "-g", "set-clipboard", "off")
    assert "tmux lets no copy through" in (await copied("x", os.environ)).words
    tmux("set", "-g", "allow-passthrough", "on")
    assert (await copied("x", os.environ)).sequence == through_tmux(osc52("x"))
