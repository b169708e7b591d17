"""What the screen shows of devices, diagnoses, disks and jobs, and what it fills in from the host's recorder."""

import msgspec
import pytest

from console.recording.format import LinkUp, Recorded
from console.ui.screens.detail import DiagnosesScreen, GpusScreen
from console.ui.widgets.alert_line import AlertLine
from remote.protocol.frames import JobChanged, Telemetry
from remote.protocol.jobs import Finished, Job, Running
from remote.protocol.telemetry import EngineSample, GpuEvent
from remote.telemetry.gpu_reading import lost_gpu
from remote.telemetry.xid import xid_text

SIZES = [(80, 24), (120, 35), (200, 50)]
LATE = 295.0


def changed(screen, **changes) -> Telemetry:
    sample = screen.app._state.sample
    return Telemetry(sample=msgspec.structs.replace(sample, sampled_at=sample.sampled_at + 1, **changes))


def gpu_changed(screen, index: int, **changes) -> Telemetry:
    gpus = list(screen.app._state.sample.gpus)
    gpus[index] = msgspec.structs.replace(gpus[index], **changes)
    return changed(screen, gpus=gpus)


def recorder_job(state) -> Job:
    return Job(
        job_id="recorder-1",
        agent="recorder",
        state=state,
        revision=1,
        created_at=2e9,
        created_by="link",
        command=["x"],
        log_size=100,
    )


@pytest.mark.parametrize("size", SIZES)
async def test_diagnoses_are_the_alerts_the_gravest_first(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=LATE, size=size, host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6 reported XID 63 (row remapping)  ! GPU 4 is held back: power cap")
        assert "✗ 2" in screen.lines[0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", [("d",), ("tab", "tab", "enter")])
async def test_a_diagnosis_is_read_in_full(eight_gpus, show, size, keys) -> None:
    async with show(eight_gpus, until=LATE, size=size, host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        await screen.pilot.press(*keys)
        await screen.until(lambda: isinstance(screen.app.screen, DiagnosesScreen))
        await screen.until_shown(
            "2026-11-30T00:56:40Z", "1 row remapped", "then reset the device", "hardware", "throttled"
        )
        await screen.pilot.press("escape")
        await screen.until_shown("shard")


async def test_the_line_of_alerts_is_reached_by_keyboard(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(80, 24), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        await screen.pilot.press("tab", "tab")
        assert isinstance(screen.app.focused, AlertLine)


async def test_where_nothing_is_wrong_it_says_so(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(80, 24)) as screen:
        await screen.until_shown("no alerts")
        await screen.pilot.press("d")
        await screen.until_shown("Nothing is wrong")


@pytest.mark.parametrize("size", SIZES)
async def test_everything_of_a_device_is_shown_and_can_be_scrolled_to(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=LATE, size=size, host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        await screen.pilot.press("g")
        await screen.until(lambda: isinstance(screen.app.screen, GpusScreen))
        await screen.until_shown(
            "memory active", "below its limit", "14000 MHz", "kWh", "PCIe in", "gen 5 x16", "ECC 0 corrected"
        )
        await screen.pilot.press("end")
        await screen.until_shown("How they are connected", "host bridge, peer to peer ok: 0–1", "CUDA 13.0")
        assert "NVLink" not in screen.text


async def test_the_events_of_a_device_outlast_the_reading_that_told_them(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(200, 60), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        assert screen.app._state.sample.gpu_events == []
        await screen.pilot.press("g")
        await screen.until_shown(
            "00:56:40 XID 63: row remapping recorded", "the driver advises: reset", "gen 5 x8 of 16"
        )


async def test_nvlink_is_shown_where_there_is_one(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(200, 60), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        health = msgspec.structs.replace(screen.app._state.sample.gpus[0].health, nvlinks_active=18)
        await screen.send(gpu_changed(screen, 0, health=health, nvlink_rx_bytes_per_s=2.0 * 2**30))
        await screen.pilot.press("g")
        await screen.until_shown("NVLink 18 links, in 2.0 GiB/s")


async def test_a_device_that_does_not_answer_shows_the_age_of_what_it_said(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(120, 35), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        at = screen.app._state.sample.sampled_at
        await screen.send(gpu_changed(screen, 1, sampled_at=at - 19))
        await screen.until_shown("! no answer for 20")


async def test_a_lost_device_shows_what_is_known_of_it_and_no_row_of_dashes(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(200, 60), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        gpus = list(screen.app._state.sample.gpus)
        gpus[0] = lost_gpu(0, ("", ""), "the GPU is lost")
        gpus[1] = lost_gpu(1, (gpus[1].name, gpus[1].uuid), "the GPU is lost")
        event = GpuEvent(at=gpus[2].sampled_at, gpu_index=1, xid=79, text=xid_text(79), source="nvml")
        await screen.send(changed(screen, gpus=gpus, gpu_events=[event]))
        await screen.pilot.press("g")
        await screen.until_shown("GPU 0  name not known  ✗ the GPU is lost", f"UUID      {gpus[1].uuid}")
        await screen.until_shown(" XID 79: it has fallen off the bus")
        assert "– of –" not in screen.text
        assert "use –" not in screen.text
        assert "XID 79 XID 79" not in screen.text


async def test_simulated_devices_are_named_as_such(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(160, 45), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        assert "SIMULATED" not in screen.text
        await screen.send(changed(screen, gpu_source="simulated"))
        await screen.until_shown("SIMULATED")
        assert "SIMULATED GPUs" in screen.lines[0]
        assert "SIMULATED" in screen.lines[4]


@pytest.mark.parametrize(
    ("size", "words"),
    [((80, 24), "full in about 2 h, needs 28:08"), ((160, 45), "the extraction still writes 262 GiB for 28:08")],
)
async def test_a_disk_shows_what_the_run_still_needs(eight_gpus, show, size, words) -> None:
    async with show(eight_gpus, until=LATE, size=size, host="rtx-lab") as screen:
        await screen.until_shown(words)


async def test_a_job_shows_its_pace_and_the_processes_that_stand_still(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(160, 45), host="rtx-lab") as screen:
        await screen.until_shown("2.94 samples/s · 159 MiB/s")
        jobs = [msgspec.structs.replace(job, suspended_pids=[9977]) for job in screen.app._state.sample.jobs]
        await screen.send(changed(screen, jobs=jobs))
        await screen.until_shown("! 1 of 2 processes stopped")


async def test_an_engine_shows_its_acceptance_rate_or_that_it_is_silent(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(120, 35), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        (engine,) = screen.app._state.sample.engines
        drafting = msgspec.structs.replace(engine, acceptance_length=1.85, acceptance_rate=0.42)
        await screen.send(changed(screen, engines=[drafting]))
        await screen.until_shown("acceptance 1.85 (42%)")
        silent = EngineSample(
            job_id=engine.job_id,
            engine="sglang",
            running_requests=None,
            queued_requests=None,
            prefill_tokens_per_s=None,
            decode_tokens_per_s=None,
            cache_usage=None,
            acceptance_length=None,
            is_answering=False,
        )
        await screen.send(changed(screen, engines=[silent]))
        await screen.until_shown("sglang does not answer")


async def test_the_recorder_is_not_in_the_way_unless_it_fails(eight_gpus, show) -> None:
    async with show(eight_gpus, until=LATE, size=(120, 35), host="rtx-lab") as screen:
        await screen.until_shown("✗ GPU 6")
        await screen.send(JobChanged(job=recorder_job(Running(since=0.0, pid=1))))
        await screen.until(lambda: "recorder-1" in screen.app._state.jobs)
        assert "recorder" not in screen.text
        assert all(job.agent != "recorder" for job in screen.app.feed.jobs_at_work)
        assert screen.app.shown_job().agent == "extraction"
        ended = Finished(started_at=0.0, ended_at=1.0, outcome="failed", exit_code=1, signal=None, reason="no psutil")
        await screen.send(JobChanged(job=recorder_job(ended)))
        await screen.until_shown("recorder", "✗ failed", "no psutil", "the recorder of readings has failed")


async def test_the_last_minutes_are_filled_in_from_the_hosts_recorder(eight_gpus, show) -> None:
    first = next(record for record in eight_gpus if isinstance(record.what, LinkUp))
    rest = [record for record in eight_gpus if not isinstance(record.what, LinkUp)]
    # The link comes up at the end: everything before was recorded while nobody looked.
    told = [record for record in rest if not isinstance(record.what, Telemetry) or record.at == LATE]
    async with show([*told, first], until=LATE, size=(160, 45), host="rtx-lab") as screen:
        session = screen.session
        recorded = [record for record in rest if isinstance(record.what, Telemetry)]

        async def read_history(since):
            session._records = recorded
            async for page in type(session).read_history(session, since):
                yield page

        session.read_history = read_history
        await screen.until(lambda: len(screen.app._state.readings.gpus.get(0, ())) == len(recorded))
        await screen.until_shown("use, last 60 readings")
        assert screen.app._state.readings.prefill.tail(1) == [screen.app._state.sample.engines[0].prefill_tokens_per_s]


async def test_a_gap_of_the_recording_is_drawn_as_a_gap(eight_gpus, show) -> None:
    def lost(record: Recorded) -> bool:
        return isinstance(record.what, Telemetry) and 100 <= record.at < 150

    async with show(
        [each for each in eight_gpus if not lost(each)], until=LATE, size=(160, 45), host="rtx-lab"
    ) as screen:
        await screen.until_shown("use, last 60 readings")
        row = next(line for line in screen.lines if line.startswith(" GPU 0"))
        drawn = row.rstrip()[-60:]
        assert drawn[20:30] == " " * 10
        assert " " not in drawn[:20] + drawn[30:]
