"""An extraction on the screen: how far, how fast, the plan for the disk, and the samples that are left out."""

import msgspec
import pytest

from remote.protocol.frames import JobChanged, ProgressMade
from remote.protocol.jobs import Finished, Paused
from remote.protocol.progress import (
    ExtractionAdvanced,
    ExtractionPlanned,
    ProgressRecord,
    QuarantineReason,
    SampleQuarantined,
)

JOB = "run-kimi-k2-5-261129-150640-7c1e-extraction"
PLAN = ExtractionPlanned(
    samples=10_000,
    tokens=17_300_000,
    loss_tokens=15_916_000,
    shards=462,
    bytes_total=924 << 30,
    bytes_needed=924 << 30,
    inodes_needed=471,
    bytes_free=1 << 40,
    inodes_free=120_000_000,
    unfit=3,
    sample_id="sample-0000001",
    sample_text="user: what is a drafter\nassistant: ⟦a small model⟧",
)
ADVANCED = ExtractionAdvanced(
    samples_done=5_100,
    samples_total=9_998,
    tokens_done=8_800_000,
    tokens_total=17_296_000,
    bytes_written=470 << 30,
    bytes_pending=1 << 30,
    bytes_total=923 << 30,
    tokens_per_s=2_900.0,
    quarantined=2,
    reasons=[QuarantineReason(reason="token …: the target has 163,840", samples=2)],
    eta_s=2_929.0,
)


async def tell(screen, *events, of: str = JOB) -> None:
    after = screen.app._state.progress_seq.get(of, 0)
    for seq, event in enumerate(events, start=after + 1):
        await screen.send(ProgressMade(job_id=of, record=ProgressRecord(seq=seq, at=1796000000.0, event=event)))


async def until_read(screen, *texts: str) -> None:
    """As `until_shown`, wherever the lines are broken."""
    await screen.until(lambda: all(text in " ".join(screen.text.split()) for text in texts))


@pytest.mark.parametrize("size", [(80, 60), (120, 60), (200, 60)])
async def test_progress_rates_plan_and_quarantine_are_on_the_page_of_the_pipeline(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=290.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("5,024 of 10,000 samples")
        bad = SampleQuarantined(sample_id="sample-0004711", reason="3 rows are not finite")
        other = SampleQuarantined(sample_id="sample-0000042", reason="the server answered 400")
        await tell(screen, PLAN, bad, other, ADVANCED)
        await screen.pilot.press("2")
        await until_read(
            screen, "5,100 of 9,998 samples", "17,296,000 tokens", "48:49 left", "2.94 samples/s", "159 MiB/s"
        )
        await until_read(
            screen, "470 GiB of 923 GiB", "1.0 GiB more", "92% count", "3 more cannot be used", "471 files"
        )
        await until_read(screen, "1.0 TiB and room for 120,000,000 files", "full in", "⟦a small model⟧")
        await until_read(screen, "Quarantined: 2 samples", "sample-0004711", "3 rows are not finite", "answered 400")


async def test_what_waits_for_the_disk_says_why_and_what_is_over_forecasts_nothing(eight_gpus, show) -> None:
    async with show(eight_gpus, until=290.0, size=(120, 60), host="rtx-lab") as screen:
        await screen.until_shown("5,024 of 10,000 samples")
        await tell(screen, msgspec.structs.replace(PLAN, bytes_free=1 << 30), ADVANCED)
        job = screen.app._state.jobs[JOB]
        waiting = Paused(since=1796000000.0, pid=7, reason="/workspace has 2 GiB, a shard needs 2.1 GiB")
        await screen.send(JobChanged(job=msgspec.structs.replace(job, state=waiting)))
        await screen.pilot.press("2")
        await until_read(screen, "paused", "a shard needs 2.1 GiB", "✗ it does not fit on the disk", "disk now")
        await until_read(screen, "2 more; `roost extraction show`", "2 x token …: the target")
        ended = Finished(started_at=1.0, ended_at=2.0, outcome="failed", exit_code=1, signal=None, reason="x")
        await screen.send(JobChanged(job=msgspec.structs.replace(job, state=ended)))
        await screen.until(lambda: "disk now" not in screen.text and "pace  " not in screen.text)
        await until_read(screen, "5,100 of 9,998 samples")
        assert "it does not fit" not in screen.text


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_the_page_of_the_storage_has_every_disk_in_full(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=290.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("5,024 of 10,000 samples" if size[0] > 80 else "5,024")
        await screen.pilot.press("6")
        await until_read(
            screen, "1.2 TiB of 3.5 TiB free", "room for", "+159 MiB/s", "still writes 262 GiB", "139 GiB of 200"
        )


async def test_an_extraction_by_itself_is_there_with_its_name_beside_the_run(eight_gpus, show) -> None:
    async with show(eight_gpus, until=290.0, size=(120, 60), host="rtx-lab") as screen:
        await screen.until_shown("5,024 of 10,000 samples")
        of_run = screen.app._state.jobs[JOB]
        await screen.send(JobChanged(job=msgspec.structs.replace(of_run, job_id="extraction-2-of-2", run_id=None)))
        await tell(screen, PLAN, ADVANCED, of="extraction-2-of-2")
        await screen.pilot.press("2")
        await until_read(screen, "Extraction extraction-2-of-2 ▶", "5,100 of 9,998 samples", "disk plan")
