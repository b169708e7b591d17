"""Copying to the clipboard of whoever sits at the terminal (OSC 52), also from within tmux; what is too much for that goes into a file.

No terminal says whether it took a copy, so what is told is where the text went, not that it arrived.
"""

import asyncio
import base64
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from console.config.locations import state_directory
from console.state.units import format_bytes

MOST_BYTES = 74_994
"""What fits into the 100,000 characters that hterm, iTerm2 and older xterms take of a copy, as base64."""

_TMUX_WAIT_S = 2.0


class Tmux(NamedTuple):
    """What the tmux around the screen does with copies, in the words of its options."""

    set_clipboard: str
    allow_passthrough: str


class Copied(NamedTuple):
    """What to write to the terminal for a copy, or why there is none, and the words that tell it."""

    sequence: str
    words: str


def osc52(text: str) -> str:
    """The sequence that hands `text` to the terminal's clipboard."""
    return f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a"


def through_tmux(sequence: str) -> str:
    """A sequence as tmux passes it on unseen where `allow-passthrough` is on."""
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


def why_no_clipboard(text: str, environment: Mapping[str, str], *, in_browser: bool) -> str:
    """Why a copy has to go into a file whatever a terminal may take; empty where it need not."""
    if in_browser:
        return "a page in a browser takes no copy from a terminal's program"
    if environment.get("STY"):
        return "GNU screen lets no copy through"
    if (size := len(text.encode())) > MOST_BYTES:
        return f"{format_bytes(size)} are more than the {format_bytes(MOST_BYTES)} that terminals take"
    return ""


async def ask_tmux(environment: Mapping[str, str]) -> Tmux | None:
    """The options of the tmux around the screen; None outside of one, or where it does not answer."""
    if not environment.get("TMUX"):
        return None
    told = await _run_tmux("display-message", "-p", "#{set-clipboard} #{allow-passthrough}")
    words = [] if told is None else told.split()
    return Tmux(words[0], words[1] if len(words) > 1 else "off") if words else None


async def copy_through_tmux(text: str, tmux: Tmux) -> Copied:
    """Have tmux hand on `text`: by its own buffer, else unseen; no sequence and no words where it does neither.

    With `set-clipboard` at its default, `external`, tmux ignores OSC 52 of programs and still copies its own buffers to the terminal.
    """
    if tmux.set_clipboard in ("on", "external"):
        if await _run_tmux("load-buffer", "-w", "-", given=text) is not None:
            return Copied("", "to tmux, which keeps it in its buffer and hands it to the terminal's clipboard")
    elif tmux.allow_passthrough in ("1", "2", "on", "all"):
        return Copied(through_tmux(osc52(text)), "through tmux to the terminal's clipboard (OSC 52)")
    return Copied("", "")


async def _run_tmux(*words: str, given: str = "") -> str | None:
    try:
        process = await asyncio.create_subprocess_exec(
            "tmux",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_TMUX_WAIT_S):
            told, _ = await process.communicate(given.encode())
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return None
    return told.decode(errors="replace") if process.returncode == 0 else None


def write_copy(text: str, name: str) -> Path:
    """Write `text` whole into a new file that only its owner can read; raises OSError."""
    directory = state_directory() / "copied"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, part = tempfile.mkstemp(dir=directory, prefix=f"{name}-", suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        path = Path(part).with_suffix(".txt")
        Path(part).rename(path)
    except OSError:
        with suppress(OSError):
            Path(part).unlink()
        raise
    return path


async def copy_text(text: str, name: str, environment: Mapping[str, str], *, in_browser: bool, to_file: bool) -> Copied:
    """Copy `text` where it can go; `name` begins the name of a file. Raises OSError where a file cannot be written."""
    reason = "" if to_file else why_no_clipboard(text, environment, in_browser=in_browser)
    if not to_file and not reason:
        if not environment.get("TMUX"):
            return Copied(osc52(text), "to the terminal's clipboard (OSC 52)")
        tmux = await ask_tmux(environment)
        copied = Copied("", "") if tmux is None else await copy_through_tmux(text, tmux)
        if copied.words:
            return copied
        reason = "this tmux lets no copy through: `set -g set-clipboard on` in tmux.conf changes that"
    path = write_copy(text, name)
    return Copied("", f"into {path}" + (f", for {reason}" if reason else ""))
