"""A recording on the screen: its own time, its own pace, and nothing that can be changed."""

from pathlib import Path

import msgspec
import pytest

from console.recording.format import LinkLost, Recorded
from console.recording.reader import Recording, open_recording
from console.ui.keymap import REPLAY_ACTIONS
from console.ui.screens.dialogs import AskLine, Confirm
from remote.protocol.frames import JobChanged, Telemetry
from remote.protocol.requests import JobList
from remote.protocol.telemetry import EngineSample

RECORDINGS = Path(__file__).parents[1] / "recordings"
SIZES = [(80, 24), (120, 35), (200, 50)]


@pytest.fixture(scope="module")
def eight() -> Recording:
    return open_recording(RECORDINGS / "kimi_extraction.jsonl")


@pytest.fixture(scope="module")
def embedded() -> Recording:
    return open_recording(RECORDINGS / "embedded_run.jsonl")


def said(screen) -> list[str]:
    return [notice.message for notice in screen.app._notifications]


@pytest.mark.parametrize("size", SIZES)
async def test_the_top_line_says_that_it_is_a_replay_when_it_was_and_how_it_goes(eight, replay, size) -> None:
    async with replay(eight, at=100.0, size=size, speed=2.0) as (screen, _):
        await screen.until_shown("GPU 7", "shard")
        assert "REPLAY 00:55:00 UTC 1:40/4:55 ▶ 2x" in screen.lines[0]
        assert screen.lines[0].rstrip().endswith(("! 1", "! 1 alert"))
        assert "connected" not in screen.text
        assert "space Pause" in screen.lines[-1]
        assert "q Quit" in screen.lines[-1]


async def test_it_goes_on_with_its_clock_and_ends_with_the_recording(eight, replay) -> None:
    async with replay(eight, at=100.0) as (screen, time):
        await screen.until_shown("1:40/4:55")
        assert "XID 63" not in screen.text
        time.move(101.0)
        await screen.until_shown("3:21/4:55", "GPU 6 reported XID 63")
        time.move(1000.0)
        await screen.until_shown("4:55/4:55 at its end", "5039 samples")


async def test_it_stands_still_and_changes_its_pace(eight, replay) -> None:
    async with replay(eight, at=100.0) as (screen, time):
        await screen.until_shown("GPU 7")
        await screen.pilot.press("space")
        await screen.until_shown("1:40/4:55 ‖ paused")
        time.move(60.0)
        await screen.until_shown("1:40/4:55 ‖ paused")
        assert "no reading" not in screen.text
        await screen.pilot.press("space", "plus")
        await screen.until_shown("▶ 2x")
        time.move(10.0)
        await screen.until_shown("2:00/4:55")
        await screen.pilot.press("minus", "minus")
        await screen.until_shown("▶ 0.5x")


async def test_it_jumps_forward_and_back_to_exactly_what_was_then(eight, replay) -> None:
    async with replay(eight, at=190.0) as (screen, _):
        await screen.until_shown("3:10/4:55", "! GPU 4 is held back", "shard 00124", "shard 00126")
        before = [line for line in screen.lines if "GPU" in line or "samples" in line]
        await screen.pilot.press("full_stop")
        await screen.until_shown("3:40/4:55", "✗ GPU 6 reported XID 63")
        await screen.pilot.press("comma")
        await screen.until_shown("3:10/4:55")
        await screen.until(lambda: [line for line in screen.lines if "GPU" in line or "samples" in line] == before)
        await screen.pilot.press("greater_than_sign")
        await screen.until_shown("4:55/4:55")
        await screen.pilot.press("less_than_sign")
        await screen.until_shown("0 s/4:55")


async def test_nothing_can_be_started_or_stopped_and_the_keys_say_so(embedded, replay) -> None:
    async with replay(embedded, at=180.0) as (screen, _):
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("r")
        await screen.until(lambda: any("nothing can be started in it" in text for text in said(screen)))
        await screen.pilot.press("s")
        await screen.until(lambda: any("nothing can be stopped" in text for text in said(screen)))
        assert not isinstance(screen.app.screen, (AskLine, Confirm))


@pytest.mark.parametrize("size", SIZES)
async def test_the_footer_has_what_can_be_looked_at(embedded, replay, size) -> None:
    async with replay(embedded, at=512.0, size=size) as (screen, _):
        await screen.until_shown("✓ promote")
        keys = ("space Pause", "+- Pace", ",. Jump", "l Log", "v Verdict", "d Diagnoses", "? Help", "q Quit")
        await screen.until(lambda: all(key in screen.lines[-1] for key in keys))


async def test_before_anything_ran_a_replay_asks_nobody_to_start_something(embedded, replay) -> None:
    jobless = embedded._replace(
        records=[record for record in embedded.records if not isinstance(record.what, (JobChanged, JobList))]
    )
    async with replay(jobless, at=1.0) as (screen, _):
        await screen.until_shown("no run of all stages at this moment of the recording")
        await screen.pilot.press("v")
        await screen.until(lambda: any("Nothing had been run yet" in text for text in said(screen)))
        assert "press r" not in screen.text


async def test_an_engine_that_was_stopped_on_purpose_is_not_said_to_be_silent(embedded, replay) -> None:
    records = list(embedded.records)
    last = next(record for record in reversed(records) if isinstance(record.what, Telemetry))
    server = next(
        record.what.job
        for record in reversed(records)
        if isinstance(record.what, JobChanged) and record.what.job.agent == "server"
    )
    silent = EngineSample(
        job_id=server.job_id,
        engine="sglang",
        running_requests=None,
        queued_requests=None,
        prefill_tokens_per_s=None,
        decode_tokens_per_s=None,
        cache_usage=None,
        acceptance_length=None,
        is_answering=False,
    )
    sample = msgspec.structs.replace(last.what.sample, engines=[silent])
    records[records.index(last)] = msgspec.structs.replace(last, what=Telemetry(sample=sample))
    async with replay(embedded._replace(records=records), at=512.0) as (screen, _):
        await screen.until_shown("✓ promote", "engine  none is running")


async def test_logs_verdict_and_curves_are_those_of_the_recording(embedded, replay) -> None:
    async with replay(embedded, at=512.0, size=(120, 35)) as (screen, _):
        await screen.until_shown("✓ promote")
        await screen.pilot.press("v")
        await screen.until_shown("12.99 tok/s", "14.98 tok/s")


async def test_a_link_that_was_lost_is_shown_as_lost_on_the_recordings_own_clock(eight, replay) -> None:
    broken = Recorded(at=101.0, what=LinkLost(reason="reset", retry_in_s=4.0))
    records = sorted([*eight.records, broken], key=lambda record: record.at)
    async with replay(eight._replace(records=records), at=100.0) as (screen, time):
        await screen.until_shown("GPU 7")
        time.move(3.0)
        await screen.until_shown("✗ link lost 2 s ago, retry in 2 s")


async def test_a_recording_of_a_killed_recorder_says_so(eight, replay) -> None:
    async with replay(eight._replace(torn=True), at=10.0) as (screen, _):
        await screen.until(lambda: any("the recorder was cut off" in text for text in said(screen)))


async def test_help_has_the_keys_of_a_replay(eight, replay) -> None:
    async with replay(eight, at=10.0, size=(160, 70)) as (screen, _):
        await screen.until_shown("GPU 7")
        await screen.pilot.press("question_mark")
        await screen.until_shown(*(action.help for action in REPLAY_ACTIONS))
