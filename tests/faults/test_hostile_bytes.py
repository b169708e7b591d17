"""A job whose every word is an attack on the terminal, seen by the real command and the real screen over a real link."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote.jobs import launch
from remote.protocol.jobs import Finished
from remote.protocol.specs import MappingCopySpec
from tests.faults.terminal import Terminal, obeyed, plain, sequences

SECRET_WORD = "T1dORUQ="
ATTACKS = (
    f"\x1b]52;c;{SECRET_WORD}\x07\x1b]52;c;{SECRET_WORD}\x1b\\\x9d52;c;{SECRET_WORD}\x9c\x1b]0;7777\x07\x1b[7777J\x1b[?7777h\x1b[7777n"
    "\x9b7777J\x1bP7777q\x1b\\\x1b_7777\x1b\\\x1bc\u202e\u2066\u200f\x07\x08\x0e\x7f"
)
MARKUP = "[/red] [bold red]not bold[/] [@click=app.quit]not a link[/]"
HOSTILE = f"evil {ATTACKS} {MARKUP} end"
TALKER = f"""
import json, os, sys
hostile = {HOSTILE!r}
out = sys.stdout.buffer
out.write(hostile.encode("utf-8", "surrogateescape") + b"\\n")
out.write(b"raw \\x9b2J \\xff\\xfe \\xe2\\x80\\n")
out.write(b"\\x1b[31mred words\\x1b[0m and \\x1b[8mhidden words\\n")
out.write(b"left in green \\x1b[32mgreen words\\n")
out.write(hostile.encode() + b" last-of-the-log\\n")
out.flush()
note = {{"type": "note", "level": "info", "text": hostile}}
with open("progress.jsonl", "w") as progress:
    progress.write(json.dumps({{"type": "progress_record", "seq": 1, "at": 1.0, "event": note}}) + "\\n")
with open("failure.json", "w") as failure:
    json.dump({{"type": "error_info", "code": "failed", "message": hostile}}, failure)
sys.exit(1)
"""


def attacks_in(written: bytes) -> list[str]:
    """Where the bytes hold what a terminal obeys or what only an attack can have brought, each with its surroundings."""
    text = plain(written)
    marks = [*obeyed(written), "7777", SECRET_WORD]
    return [text[max(0, text.find(mark) - 60) : text.find(mark) + 60] for mark in marks if mark in text]


@pytest.fixture
def evil(openssh, workshop, embedded_data: Path) -> str:
    """The id of a failed job, all of whose words are hostile, on the host `lab`."""
    openssh.remember()
    host = openssh.config(workshop.root)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "roost/roost.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f'[hosts.lab]\naddress = "{host.address}"\nport = {host.port}\nuser = "{host.user}"\n'
        f'identity_file = "{host.identity_file}"\nroot = "{host.root}"\npython = "{host.python}"\n'
    )
    talker = workshop.root / "talker.py"
    talker.write_text(TALKER)
    plan = workshop.store._starter._plan
    workshop.store._starter._plan = lambda spec: launch.LaunchPlan(
        agent=HOSTILE, argv=[sys.executable, "-S", str(talker), HOSTILE], stop_grace_s=5.0
    )
    spec = MappingCopySpec(source=f"/models/{HOSTILE}", destination="5")
    workshop.store.start("evil-job", spec, actor=HOSTILE, op_id="start-evil")
    workshop.store._starter._plan = plan
    job = workshop.until("evil-job", lambda job: isinstance(job.state, Finished))
    assert SECRET_WORD in job.state.reason
    return "evil-job"


def roost(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "console.cli", *arguments, "-H", "lab"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize("verb", ["status", "logs", "wait"])
def test_no_verb_passes_on_what_a_terminal_obeys(evil, verb) -> None:
    told = roost(verb, evil)
    assert attacks_in(told.stdout + told.stderr) == []
    assert b"[@click=app.quit]not a link[/]" in told.stdout
    assert b"\x1b" not in told.stdout + told.stderr
    in_json = roost(verb, evil, "--json")
    assert not obeyed(in_json.stdout + in_json.stderr)
    assert b"\x1b" not in in_json.stdout
    assert MARKUP in json.dumps(json.loads(in_json.stdout))


def test_the_list_has_one_line_a_job_whatever_its_words_are(evil) -> None:
    table = roost("jobs")
    assert attacks_in(table.stdout + table.stderr) == []
    assert len(table.stdout.splitlines()) == 2


def test_a_terminal_gets_the_colours_of_a_log_and_each_ends_with_its_line(evil) -> None:
    terminal = Terminal("logs", evil, "-H", "lab")
    assert terminal.wait() == 0
    assert attacks_in(terminal.bytes) == []
    assert sequences(terminal.bytes) == {b"\x1b[31m", b"\x1b[0m", b"\x1b[8m", b"\x1b[32m"}
    assert b"\x1b[32mgreen words\x1b[0m\r\n" in terminal.bytes


def test_no_color_means_none(evil) -> None:
    terminal = Terminal("logs", evil, "-H", "lab", NO_COLOR="1")
    assert terminal.wait() == 0
    assert sequences(terminal.bytes) == set()
    assert "red words" in plain(terminal.bytes)


@pytest.fixture
def screen(evil) -> Iterator[Terminal]:
    terminal = Terminal("--host", "lab")
    yield terminal
    terminal.end()


def test_comfy_cli_717_markup_in_a_log_crashes_nothing_and_the_screen_writes_no_sequence_but_its_own(screen) -> None:
    seen = screen.until("connected", "last-of-the-log", "failed", "not bold[/] [@click=app.quit]not a link[/]")
    screen.press("c")
    seen = screen.until("Command of evil-job", "not bold[/]", since=seen)
    screen.press("\r")
    screen.press("l")
    screen.until("left in green", "hidden words", since=seen)
    screen.press("\x03")
    assert screen.wait() == 0
    assert attacks_in(screen.bytes) == []


def test_the_screen_shows_the_colours_of_a_log_and_hides_nothing(screen) -> None:
    screen.until("last-of-the-log")
    screen.press("\x03")
    assert screen.wait() == 0
    assert re.search(rb"\x1b\[[0-9;]*mred words", screen.bytes)
    assert not re.search(rb"\x1b\[(?:[0-9;]*;)?8(?:;[0-9;]*)?mhidden", screen.bytes)
