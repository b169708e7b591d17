"""The overview at three sizes: what must never be missing is there, and nothing is cut off in the middle."""

import re
import time

import msgspec
import pytest

from console.recording.format import LinkUp
from console.state.link import Lost, Up
from console.ui.screens.dialogs import Notice
from console.ui.texts import verdict_text
from remote.protocol.frames import JobChanged, LogData, ProgressMade, Telemetry
from remote.protocol.jobs import Job, Running
from remote.protocol.progress import ProgressRecord, StageChanged, StageFailed
from tests.report.verdicts import verdict

SIZES = [(80, 24), (120, 35), (160, 45), (200, 50)]
TRAINING, EVALUATING, OVER = 180.0, 330.0, 510.0


@pytest.mark.parametrize("size", SIZES)
async def test_a_training_shows_host_stages_cores_disk_jobs_log(embedded_run, show, size) -> None:
    async with show(embedded_run, until=TRAINING, size=size) as screen:
        await screen.until_shown(
            "● connected", "run embedded ▶ running", "▶ train", "✓ vocab", "step 225/400  loss", "q Quit"
        )
        assert "CPU 0" in screen.text
        assert "no GPU here" in screen.text
        assert "sample" in screen.lines[0]
        detail = next(line for line in screen.lines if "56%" in line)
        assert detail.startswith(" training")
        assert "left" in detail
        assert "GiB free" in screen.text
        assert "▶ running" in screen.text
        assert "no alerts" in screen.lines[-2]
        assert "q Quit" in screen.lines[-1]


@pytest.mark.parametrize("size", SIZES)
async def test_eight_gpus_disk_jobs_and_log_share_every_size(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=295.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "/workspace", "full in", "GiB in the store")
        rows = [line for line in screen.lines if line.strip().startswith("GPU ") and "GiB" in line]
        assert len(rows) == 8
        assert "power cap" in rows[4]
        assert "83 °C" in rows[4]
        assert "prefill 2.88k tok/s" in screen.text
        for agent in ("run", "extraction", "server"):
            assert any(line.split()[:1] == [agent] for line in screen.lines), agent


async def test_a_lost_gpu_keeps_its_row(eight_gpus, show) -> None:
    async with show(eight_gpus, until=295.0, size=(80, 24), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7")
        sample = screen.app._state.sample
        gpus = list(sample.gpus)
        gpus[6] = msgspec.structs.replace(gpus[6], error="fell off the bus (XID 79)", gpu_utilization=None)
        await screen.send(Telemetry(sample=msgspec.structs.replace(sample, gpus=gpus, diagnoses=[])))
        await screen.until_shown("GPU 6  ✗ fell off the bus (XID 79)")
        assert "GPU 7" in screen.text


@pytest.mark.parametrize("size", SIZES)
async def test_why_a_gpu_is_lost_is_shown_as_far_as_there_is_room(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=295.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("GPU 7")
        sample = screen.app._state.sample
        gpus = list(sample.gpus)
        gpus[6] = msgspec.structs.replace(gpus[6], error="it is " + "very " * 40 + "lost")
        await screen.send(Telemetry(sample=msgspec.structs.replace(sample, gpus=gpus)))
        await screen.until_shown("GPU 6  ✗ it is very")
        row = next(line for line in screen.lines if line.lstrip().startswith("GPU 6"))
        assert "lost" not in row
        assert "…" in row


@pytest.mark.parametrize("size", SIZES)
async def test_the_heading_of_the_devices_has_no_cut_word(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=295.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("GPU 7")
        sample = screen.app._state.sample
        await screen.send(Telemetry(sample=msgspec.structs.replace(sample, gpu_source="simulated")))
        await screen.until_shown("SIMULATED")
        heading = next(line for line in screen.lines if line.lstrip().startswith("GPU    use"))
        told = heading.rstrip().removesuffix("SIMULATED").partition("health")[2].strip()
        assert re.fullmatch(r"(use, last \d+ readings|last \d+|)", told)


async def test_a_lost_gpu_names_the_job_that_has_it_where_there_is_room(eight_gpus, show) -> None:
    async with show(eight_gpus, until=295.0, size=(160, 45), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7")
        sample = screen.app._state.sample
        gpus = list(sample.gpus)
        gpus[6] = msgspec.structs.replace(gpus[6], error="GPU is lost", gpu_utilization=None)
        await screen.send(Telemetry(sample=msgspec.structs.replace(sample, gpus=gpus)))
        await screen.until_shown("GPU 6  ✗ GPU is lost  used by server")


async def test_curves_are_a_line_or_plots_by_height(embedded_run, show) -> None:
    for size, rows in (((120, 35), 1), ((160, 45), 5)):
        async with show(embedded_run, until=TRAINING, size=size) as screen:
            await screen.until_shown("1st draft token", "loss")
            assert screen.app.screen.query_one("#charts").size.height == rows


async def test_an_evaluation_shows_rates_and_acceptance(embedded_run, show) -> None:
    async with show(embedded_run, until=EVALUATING, size=(120, 35)) as screen:
        await screen.until_shown("▶ evaluation", "decode", "tok/s", "acceptance length 1.73", "14/20 prompts")


async def test_a_finished_run_shows_its_verdict_in_a_line_and_in_full(embedded_run, show) -> None:
    async with show(embedded_run, until=OVER, size=(120, 35)) as screen:
        await screen.until_shown("✓ promote", "13.0 tok/s without the drafter, 15.0 with it: 1.15x")
        await screen.pilot.press("v")
        await screen.until_shown("12.99 tok/s", "14.98 tok/s", "95% interval", "20 of 20 identical", "Because")


async def test_what_is_done_says_what_came_out_of_it(embedded_run, show) -> None:
    async with show(embedded_run, until=OVER, size=(160, 45)) as screen:
        await screen.until_shown("✓ promote", "400 steps, loss", "accepted on test text")
        await screen.until_shown(
            "with the drafter 15.0 tok/s, acceptance length", "without the drafter 13.0 tok/s, 20 prompts"
        )
        assert "export begins" not in screen.text


async def test_a_verdict_of_several_loads_says_where_it_helps_and_what_to_look_at(embedded_run, show) -> None:
    async with show(embedded_run, until=OVER, size=(140, 50)) as screen:
        await screen.until_shown("✓ promote")
        screen.app.push_screen(
            Notice("Verdict", verdict_text(verdict(decision="reject"), "run-mine-261202-161122-8b5b", "lab"))
        )
        await screen.until_shown(
            "✓ 1.30x (95% interval 1.25x to 1.35x)",
            "does not count",
            "70%, 45%, 25%",
            "coding 2.00",
            "What to look at, in this order",
            "training against serving (look here): too little",
            "roost verdict run-mine-261202-161122-8b5b --output DIR --host lab",
            "roost pull /runs/kimi/drafter ./drafter --host lab",
        )


async def test_before_anything_ran_it_says_which_key_runs(embedded_run, show) -> None:
    beginning = [record for record in embedded_run if record.at < 1.0 and not isinstance(record.what, JobChanged)]
    for host, hint in (("embedded", "press r to run the embedded preset"), ("lab", "press r to plan one")):
        async with show(beginning, until=1.0, size=(80, 24), host=host) as screen:
            await screen.until_shown("no run yet", hint, "no job yet")


async def test_a_lost_link_is_told_with_its_retry_and_comes_back(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("● connected")
        now = time.monotonic()
        await screen.send(Lost(since=now - 3, reason="the connection was reset", retry_at=now + 20))
        await screen.until_shown("✗ link lost", "retry in", "jobs on the host go on", "the connection was reset")
        assert "✗ 1 alert" in screen.lines[0]
        welcome = next(record.what.welcome for record in embedded_run if isinstance(record.what, LinkUp))
        await screen.send(Up(since=time.monotonic(), latency_s=0.02, welcome=welcome))
        await screen.until_shown("● connected 20 ms")
        assert "link lost" not in screen.text


async def test_the_log_goes_on_after_a_lost_link_without_a_gap_or_a_repeat(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        buffer = screen.app._state.logs[screen.app.shown_job().job_id]
        job_id, cursor, before = screen.app.shown_job().job_id, buffer.cursor, buffer.written
        await screen.send(
            LogData(job_id=job_id, offset=cursor, data=b"first\nsecond\n"),
            Lost(since=time.monotonic(), reason="gone", retry_at=time.monotonic()),
            LogData(job_id=job_id, offset=cursor, data=b"first\nsecond\nthird\n"),
        )
        await screen.until_shown("third")
        assert list(buffer.lines)[-3:] == ["first", "second", "third"]
        assert buffer.written == before + 3


async def test_a_failed_stage_is_red_in_words_with_its_reason(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("▶ train")
        run = screen.app._state.newest_run()
        failed = StageFailed(started_at=0.0, ended_at=1.0, reason="the disk is full: free 2 GiB, then run again")
        record = ProgressRecord(
            seq=screen.app._state.progress_seq[run.job_id] + 1,
            at=1.0,
            event=StageChanged(stage="training", state=failed),
        )
        await screen.send(ProgressMade(job_id=run.job_id, record=record))
        await screen.until_shown("✗ train", "training failed: the disk is full: free 2 GiB, then run again")


HOSTILE = b"\x1b]0;owned\x07\x1b[2J[bold red]markup[/] \xe2\x80\xae reversed \xff \x9b31m[@click=app.quit]x[/]"


async def test_hostile_text_is_shown_as_text_and_nothing_else(embedded_run, show) -> None:
    beginning = [record for record in embedded_run if record.at < 1.0 and not isinstance(record.what, JobChanged)]
    async with show(beginning, until=1.0, size=(120, 35)) as screen:
        await screen.until_shown("no job yet")
        text = HOSTILE.decode(errors="replace")
        job = Job(
            job_id="evil-1",
            agent=text,
            state=Running(since=0.0, pid=1),
            revision=1,
            created_at=0.0,
            created_by=text,
            command=[text],
            last_line=text,
            log_size=1,
        )
        await screen.send(JobChanged(job=job))
        await screen.until(lambda: "evil-1" in screen.app._state.logs)
        await screen.send(LogData(job_id="evil-1", offset=0, data=HOSTILE + b"\nafter\n"))
        await screen.until_shown("after", "[bold red]markup[/]", "[@click=app.quit]x[/]")
        assert not any(character in screen.text for character in "\x1b\x9b\x07\u202e")
        await screen.pilot.press("c")
        await screen.until_shown("Command of evil-1", "[bold red]markup[/]")
        assert not any(character in screen.text for character in "\x1b\x9b\x07\u202e")


async def test_both_themes_show_the_same_words(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("▶ train", "step 225/400  loss")
        dark = screen.app.theme
        dark_lines = [_without_clocks(line) for line in screen.lines]
        await screen.pilot.press("t")
        await screen.until(lambda: screen.app.theme != dark)
        assert not screen.app.current_theme.dark
        assert [_without_clocks(line) for line in screen.lines] == dark_lines


def _without_clocks(line: str) -> str:
    return re.sub(r"\d+:\d\d|sample.*ago", "", line)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (120, 12)])
async def test_a_terminal_that_is_too_small_is_told_how_things_are_in_words(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=295.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("rtx-lab ● connected", "2 alerts. ✗ GPU 6")
        assert "╭" not in screen.text
        if size != (20, 5):
            await screen.until_shown("▶ run kimi-k2-5 running", "▶ extraction 50%", "needs 60x20")
        await screen.pilot.press("2")
        await screen.until_shown("rtx-lab ● connected", "2 alerts. ✗ GPU 6")
        await screen.pilot.resize_terminal(80, 24)
        await screen.until_shown("GPU", "▸2 Pipel")


async def test_the_least_room_has_the_devices_the_disk_jobs_and_alerts(eight_gpus, show) -> None:
    async with show(eight_gpus, until=295.0, size=(60, 20), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "/workspace", "▶ running", "✗ GPU 6", "1-8 Pages")
