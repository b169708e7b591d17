"""The log on the whole screen: long lines are read to their end, a reader stays where they are, and what is looked for is found."""

import base64
import re
from contextlib import asynccontextmanager

import pytest
from textual.geometry import Offset
from textual.selection import Selection

from console.config.locations import state_directory
from console.ui.screens.log import LogScreen
from console.ui.widgets.log_pane import LogPane
from remote.protocol.frames import JobChanged, LogData
from remote.protocol.jobs import Job, Running

TRAINING = 180.0
SIZES = [(80, 24), (120, 35), (200, 50)]
LONG = " ".join(f"word{n:03}" for n in range(60)) + " the-end"


class Log:
    """A job's log on the whole screen, and a way to write more into it."""

    def __init__(self, screen) -> None:
        self.screen = screen
        self.pane = screen.app.screen.query_one(LogPane)
        self.pilot = screen.pilot
        self.written = 0

    def numbers(self) -> list[str]:
        """Which of the numbered lines are on the screen, from the top."""
        return re.findall(r"line (\d{4})", self.screen.text)

    async def write(self, *lines: str) -> None:
        data = "".join(f"{line}\n" for line in lines).encode()
        await self.screen.send(LogData(job_id="talker", offset=self.written, data=data))
        self.written += len(data)
        await self.screen.until(lambda: self.screen.app._state.logs["talker"].cursor == self.written)
        await self.screen.until(lambda: self.pane._written == self.screen.app._state.logs["talker"].written)


@asynccontextmanager
async def open_log(show, embedded_run, size, *lines: str):
    async with show(embedded_run, until=TRAINING, size=size) as screen:
        job = Job(
            job_id="talker",
            agent="run",
            state=Running(since=0.0, pid=1),
            revision=1,
            created_at=1e12,
            created_by="ann",
            command=["talk"],
        )
        await screen.until_shown("● connected")
        await screen.send(JobChanged(job=job))
        screen.app.feed.selected = "talker"
        await screen.until(lambda: "talker" in screen.app._state.logs)
        await screen.pilot.press("l")
        await screen.until(lambda: isinstance(screen.app.screen, LogScreen))
        await screen.until_shown("log of talker")
        log = Log(screen)
        await log.write(*lines)
        yield log


def numbered(count: int) -> list[str]:
    return [f"line {number:04}" for number in range(count)]


@pytest.mark.parametrize("size", SIZES)
async def test_a_long_line_is_read_to_its_end_by_wrapping_or_sideways(embedded_run, show, size) -> None:
    async with open_log(show, embedded_run, size, "short", LONG) as log:
        await log.screen.until_shown("word000", "w Wrap", "/ Find", "space Mark", "esc Back", "? Help")
        assert "the-end" not in log.screen.text
        await log.pilot.press("w")
        await log.screen.until_shown("the-end", "wrapped")
        rows = [line[2:-1] for line in log.screen.lines[2:]]
        assert "".join(rows).startswith(LONG)
        await log.pilot.press("w")
        await log.screen.until(lambda: "the-end" not in log.screen.text)
        await log.pilot.press(*["right"] * 12)
        await log.screen.until_shown("the-end", "from column")
        await log.write("another")
        await log.screen.until_shown("the-end", "from column", "following")
        await log.pilot.press(*["left"] * 12)
        await log.screen.until_shown("word000", "another")
        assert "from column" not in log.screen.text


@pytest.mark.parametrize("size", SIZES)
async def test_scrolling_up_stops_following_and_the_end_follows_again(embedded_run, show, size) -> None:
    async with open_log(show, embedded_run, size, *numbered(300)) as log:
        await log.screen.until_shown("line 0299", "to 300 of 300 · following")
        assert "f Follow" not in log.screen.text
        await log.pilot.press("pageup")
        await log.screen.until_shown("NOT FOLLOWING", "0 new below", "f Follow")
        shown = log.numbers()
        await log.write("line 0300", "line 0301")
        await log.screen.until_shown("2 new below")
        assert log.numbers() == shown
        await log.pilot.press("home")
        await log.screen.until_shown("line 0000", "lines 1 to")
        await log.pilot.press("end")
        await log.screen.until_shown("line 0301", "of 302 · following")
        await log.pilot.press("pageup", "pagedown")
        await log.screen.until_shown("line 0301", "of 302 · following")


async def test_a_reader_stays_at_the_same_line_while_the_oldest_ones_go(embedded_run, show) -> None:
    async with open_log(show, embedded_run, (80, 24), *numbered(5000)) as log:
        await log.pilot.press("pageup", "pageup")
        await log.screen.until_shown("NOT FOLLOWING")
        shown = log.numbers()
        await log.write(*numbered(40))
        await log.screen.until_shown("40 new below")
        assert log.numbers() == shown


async def test_wrapping_keeps_the_line_that_was_at_the_top(embedded_run, show) -> None:
    lines = [f"{number:04} {LONG}" for number in range(200)]
    async with open_log(show, embedded_run, (120, 35), *lines) as log:
        await log.pilot.press("pageup", "pageup")
        await log.screen.until_shown("NOT FOLLOWING")
        top = log.screen.lines[1].split()[0]
        await log.pilot.press("w")
        await log.screen.until(lambda: log.screen.lines[1].split()[:1] == [top] and "wrapped" in log.screen.text)
        await log.pilot.press("w")
        await log.screen.until(lambda: log.screen.lines[1].split()[:1] == [top] and "wrapped" not in log.screen.text)


@pytest.mark.parametrize("size", SIZES)
async def test_matches_are_found_newest_first_counted_and_gone_through(embedded_run, show, size) -> None:
    lines = [f"{line} {'needle' if number % 100 == 50 else 'hay'}" for number, line in enumerate(numbered(300))]
    async with open_log(show, embedded_run, size, *lines) as log:
        await log.screen.until_shown("line 0299")
        await log.pilot.press("slash")
        await log.pilot.press(*"ne+dle", "enter")
        await log.screen.until_shown(
            "line 0250", "match 3 of 3 · 0 new below", "NOT FOLLOWING", "n N Matches", "o Filter", "? Help"
        )
        await log.pilot.press("N")
        await log.screen.until_shown("line 0150", "match 2 of 3")
        await log.pilot.press("n", "n")
        await log.screen.until_shown("line 0050", "match 1 of 3")
        await log.pilot.press("o")
        await log.screen.until_shown("line 0050", "line 0150", "line 0250", "other lines left out")
        assert "hay" not in log.screen.text
        await log.pilot.press("o")
        await log.screen.until_shown("hay", "3 lines with it left out", "/!ne+dle")
        assert "needle" not in log.screen.text
        await log.pilot.press("o", "slash")
        await log.pilot.press(*["backspace"] * 6, "enter")
        await log.screen.until(lambda: "left out" not in log.screen.text and "hay" in log.screen.text)


async def test_a_find_with_an_exclamation_mark_leaves_out_what_matches(embedded_run, show) -> None:
    async with open_log(show, embedded_run, (80, 24), "GET /health", "loss 1", "GET /health", "!odd") as log:
        await log.pilot.press("slash")
        await log.screen.until_shown("!… leaves out what matches")
        await log.pilot.press(*"!get", "enter")
        await log.screen.until_shown("2 lines with it left out", "/!get", "loss 1", "!odd")
        assert "GET" not in log.screen.text
        await log.write("GET /health", "loss 2")
        await log.screen.until_shown("3 lines with it left out", "loss 2")
        assert "GET" not in log.screen.text
        await log.pilot.press("slash")
        await log.screen.until_shown("!get")
        await log.pilot.press(*["backspace"] * 4, *"\\!odd", "enter")
        await log.screen.until_shown("match 1 of 1", "GET /health", r"/\!odd")


async def test_levels_have_letters_and_colours_and_progress_lines_are_sentences(embedded_run, show) -> None:
    lines = (
        "[2026-12-01 11:22:49 TP0] WARNING: slow",
        "Traceback (most recent call last):",
        "DEBUG:asyncio:x",
        "plain",
        "2026-12-03T13:14:15Z arm_advanced arm=drafter prompts_done=3 prompts_total=20 decode_tokens_per_s=12.5 concurrency=1",
    )
    async with open_log(show, embedded_run, (80, 24), *lines) as log:
        await log.screen.until_shown("E Traceback", "D DEBUG", "13:14:15 drafter: 3/20 prompts, 12.5 tok/s")
        assert [line[:2] for line in log.screen.lines[1:6]] == ["W ", "E ", "D ", "  ", "  "]
        colors = {piece.text.strip(): piece.style.color for piece in log.pane.render_line(1)}
        assert colors["E"] == colors["Traceback (most recent call last):"]
        assert colors["E"] != log.pane.rich_style.color


def told(log: Log) -> list[str]:
    return [note.message for note in log.screen.app._notifications]


async def test_lines_are_marked_by_keys_and_copied_to_the_terminal(embedded_run, show, monkeypatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("STY", raising=False)
    written: list[str] = []
    async with open_log(show, embedded_run, (80, 24), *numbered(100)) as log:
        monkeypatch.setattr(log.screen.app._driver, "write", written.append)
        await log.pilot.press("y")
        await log.screen.until(lambda: any("space marks lines" in each for each in told(log)))
        await log.pilot.press("space", "up", "up")
        await log.screen.until_shown("3 lines marked", "y Copy", "▌line 0097", "▌line 0099")
        assert "▌line 0096" not in log.screen.text
        await log.pilot.press("w")
        assert not log.pane.wraps
        await log.write("line 0100")
        await log.pilot.press("y")
        await log.screen.until(lambda: any("3 lines (30 B) went to the terminal" in each for each in told(log)))
        copied = [base64.b64decode(each[7:-1]).decode() for each in written if each.startswith("\x1b]52;c;")]
        assert copied == ["line 0097\nline 0098\nline 0099\n"]
        await log.screen.until(lambda: "marked" not in log.screen.text)
        await log.pilot.press("f", "space", "home")
        await log.screen.until_shown("101 lines marked", "line 0000")
        await log.pilot.press("escape")
        await log.screen.until(lambda: "marked" not in log.screen.text)
        assert isinstance(log.screen.app.screen, LogScreen)


async def test_marked_lines_go_into_a_file_with_their_whole_text(embedded_run, show) -> None:
    async with open_log(show, embedded_run, (80, 24), "\x1b[31mred\x1b[0m", LONG) as log:
        await log.pilot.press("space", "up", "Y")
        await log.screen.until(lambda: any("2 lines" in each and "went into /" in each for each in told(log)))
        (path,) = state_directory().glob("copied/talker-*.txt")
        assert path.read_text() == f"red\n{LONG}\n"
        assert any(str(path) in each for each in told(log))


async def test_what_the_mouse_selects_is_copied_without_marks_and_colours(embedded_run, show) -> None:
    async with open_log(show, embedded_run, (80, 24), "\x1b[31mERROR\x1b[0m: one", "two") as log:
        await log.screen.until_shown("E ERROR: one")
        pane = log.pane
        log.screen.app.screen.selections = {pane: Selection(Offset(2, 0), Offset(2, 1))}
        await log.pilot.press("Y")
        await log.screen.until(lambda: any("went into /" in each for each in told(log)))
        (path,) = state_directory().glob("copied/talker-*.txt")
        assert path.read_text() == "ROR: one\ntw\n"


async def test_the_page_of_logs_has_the_same_keys(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("3")
        await screen.until_shown("▸3 Logs", "step 225/400", "w Wrap", "/ Find")
        await screen.pilot.press("slash")
        await screen.pilot.press(*"step 5/", "enter")
        await screen.until_shown("match 1 of 1", "/step 5/", "NOT FOLLOWING", "o Filter")
        await screen.pilot.press("f")
        await screen.until(lambda: "NOT FOLLOWING" not in screen.text)


async def test_a_match_beyond_the_edge_is_brought_into_sight(embedded_run, show) -> None:
    async with open_log(show, embedded_run, (80, 24), "short", LONG) as log:
        await log.pilot.press("slash")
        await log.pilot.press(*"the-end", "enter")
        await log.screen.until_shown("the-end", "from column", "match 1 of 1")


async def test_leaving_the_line_to_find_changes_nothing_and_its_keys_are_letters_there(embedded_run, show) -> None:
    async with open_log(show, embedded_run, (80, 24), *numbered(10)) as log:
        await log.pilot.press("slash")
        await log.pilot.press(*"wnoq")
        await log.screen.until_shown("wnoq")
        await log.pilot.press("escape")
        await log.screen.until(lambda: "wnoq" not in log.screen.text)
        assert isinstance(log.screen.app.screen, LogScreen)
        assert not log.pane.wraps
        assert "match" not in log.screen.text
