"""The screen is found as it was left, a host that is not there yet is tried again, and a failure leaves a report."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from console.config.screen_memory import Recalled, ScreenMemory
from console.errors import ConnectionFailed
from console.ui import host_feed, start
from console.ui.app import RoostApp
from console.ui.crash import crash_directory, crash_report
from console.ui.recording import RecordedSession
from tests.ui.conftest import Shown

TRAINING = 180.0


@asynccontextmanager
async def opened(session: RecordedSession, recalled: Recalled, kept: list[ScreenMemory]):
    @asynccontextmanager
    async def connect():
        yield session

    def keep(memory: ScreenMemory) -> str:
        kept.append(memory)
        return ""

    app = RoostApp("embedded", connect, recalled=recalled, keep=keep)
    async with app.run_test(size=(100, 30)) as pilot:
        yield Shown(app, pilot, session)


async def test_theme_page_and_host_are_kept_and_found_again(embedded_run) -> None:
    kept: list[ScreenMemory] = []
    async with opened(RecordedSession(embedded_run, until=TRAINING), Recalled(ScreenMemory()), kept) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press("2", "t")
        await screen.until(lambda: len(kept) == 3)
        theme = screen.app.theme
    assert kept[-1] == ScreenMemory(theme=theme, host="embedded", page="pipeline")
    async with opened(RecordedSession(embedded_run, until=TRAINING), Recalled(kept[-1]), kept) as screen:
        await screen.until_shown("▸2 Pipeline", "● connected")
        assert screen.app.theme == theme
        await screen.pilot.press("escape")
        await screen.until(lambda: kept[-1].page == "")


async def test_layout_and_job_are_kept_and_found_again(embedded_run) -> None:
    kept: list[ScreenMemory] = []
    async with opened(RecordedSession(embedded_run, until=TRAINING), Recalled(ScreenMemory()), kept) as screen:
        await screen.until_shown("● connected", "step 225/400  loss")
        await screen.pilot.press("up", "z")
        await screen.until(lambda: "step 225/400  loss" not in screen.text)
    assert kept[-1].layout == "jobs"
    chosen = kept[-1].job
    assert chosen
    async with opened(RecordedSession(embedded_run, until=TRAINING), Recalled(kept[-1]), kept) as screen:
        await screen.until(lambda: screen.app.feed.selected == chosen)
        assert "step 225/400  loss" not in screen.text
        await screen.pilot.press("z", "z")
        await screen.until_shown(f"log of {chosen}")
        assert kept[-1].layout == "shared"


async def test_a_job_that_is_over_by_now_gives_way_to_one_at_work(embedded_run) -> None:
    memory = ScreenMemory(host="embedded", job="run-embedded-261201-112237-29e6-server")
    async with opened(RecordedSession(embedded_run, until=TRAINING), Recalled(memory), []) as screen:
        await screen.until_shown("log of run-embedded-261201-112237-29e6-training")
        assert screen.app.feed.selected is None


async def test_how_logs_are_laid_out_is_kept_and_so_on_every_log(embedded_run) -> None:
    kept: list[ScreenMemory] = []
    async with opened(RecordedSession(embedded_run, until=TRAINING), Recalled(ScreenMemory()), kept) as screen:
        await screen.until_shown("● connected", "step 225/400  loss")
        await screen.pilot.press("l", "w", "slash")
        await screen.pilot.press(*"step 2", "enter")
        await screen.pilot.press("o")
        await screen.until_shown("wrapped", "other lines left out")
        await screen.pilot.press("escape", "3")
        await screen.until_shown("▸3 Logs", "wrapped")
    assert kept[-1].log_wraps
    assert kept[-1].log_filter == "only"
    async with opened(RecordedSession(embedded_run, until=TRAINING), Recalled(kept[-1]), kept) as screen:
        await screen.until_shown("▸3 Logs", "● connected", "wrapped", "step 225/400")
        await screen.pilot.press("slash")
        await screen.pilot.press(*"step 2", "enter")
        await screen.until_shown("other lines left out")


async def test_what_is_not_there_any_more_is_passed_over_and_a_broken_file_told(embedded_run) -> None:
    kept: list[ScreenMemory] = []
    recalled = Recalled(ScreenMemory(theme="gone", page="gone", host="embedded"), "screen.json is not used")
    async with opened(RecordedSession(embedded_run, until=TRAINING), recalled, kept) as screen:
        await screen.until_shown("● connected", "step 225/400  loss")
        assert screen.app.theme == "roost-dark"
        assert any("screen.json is not used" in note.message for note in screen.app._notifications)


async def test_a_host_that_is_not_there_yet_is_tried_again_with_words_and_age(embedded_run, monkeypatch) -> None:
    monkeypatch.setattr(host_feed, "FIRST_WAIT_S", 0.01)
    session, attempts, there = RecordedSession(embedded_run, until=TRAINING), [], []

    @asynccontextmanager
    async def connect():
        attempts.append(1)
        if not there:
            raise ConnectionFailed("nobody listens at 10.0.0.1:22", hint="is the host running?")
        yield session

    app = RoostApp("lab", connect)
    async with app.run_test(size=(140, 30)) as pilot:
        screen = Shown(app, pilot, session)
        await screen.until_shown("✗ not reached for", "retry in", "nobody listens at 10.0.0.1:22. is the host running?")
        await screen.until(lambda: len(attempts) > 2)
        there.append(1)
        await screen.until_shown("● connected", "step 225/400  loss")


def test_only_a_host_that_is_still_configured_is_opened_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "roost").mkdir()
    (tmp_path / "roost/roost.toml").write_text('[hosts.lab]\naddress = "lab.example.com"\n')
    assert start.host_of_last_time(ScreenMemory(host="lab")) == "lab"
    assert start.host_of_last_time(ScreenMemory(host="demo-one_xid")) == "embedded"
    assert start.host_of_last_time(ScreenMemory()) == "embedded"
    (tmp_path / "roost/roost.toml").write_text("[hosts.lab")
    assert start.host_of_last_time(ScreenMemory(host="lab")) == "embedded"


def test_a_report_covers_secrets_and_says_where_it_happened() -> None:
    environment = {"HF_TOKEN": "hf_abcdefgh12345678", "HOME": "/home/ann", "TERM": "xterm"}
    try:
        secret = environment["HF_TOKEN"]
        raise ValueError(f"refused {secret} for /home/ann/x")
    except ValueError as error:
        report = crash_report(error, {"theme": "roost-dark"}, environment)
    assert "ValueError: refused *******************" in report
    assert "for ~/x" in report
    assert "hf_abc" not in report
    assert "theme: roost-dark\nTERM: xterm" in report
    assert "in test_a_report_covers_secrets" in report


class Broken(RoostApp):
    """Fails when it is looked at."""

    def render_state(self) -> None:
        raise ValueError("drawn wrongly")


def test_a_screen_that_fails_writes_a_report_and_ends_with_1(
    embedded_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    session = RecordedSession(embedded_run, until=TRAINING)

    @asynccontextmanager
    async def connect():
        yield session

    app = Broken("embedded", connect)
    assert start.run_guarded(app, headless=True) == 1
    (report,) = crash_directory().iterdir()
    assert "ValueError: drawn wrongly" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600
    told = capsys.readouterr().err
    assert "The screen has failed: ValueError: drawn wrongly" in told
    assert str(report) in told
    assert "locals" not in told
