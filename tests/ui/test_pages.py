"""The pages: each has its key, and none goes without devices, disk, jobs, alerts and keys."""

import msgspec
import pytest

from console.ui.keymap import PAGES
from console.ui.pages.catalog import PAGE_KINDS
from console.ui.widgets.page_tabs import title_letters
from remote.protocol.errors import ErrorCode
from remote.protocol.frames import JobChanged
from remote.protocol.journal import JournalEntry
from remote.protocol.reports import RunPlan
from remote.protocol.specs import RunSpec
from remote.protocol.storage import StorageEntry, StorageReport, TrashEntry

SIZES = [(60, 20), (80, 24), (120, 35), (200, 50)]


def test_every_page_of_the_table_has_a_class_and_a_key_of_its_own() -> None:
    assert {page.name for page in PAGES} == {"overview", *PAGE_KINDS}
    assert len({page.key for page in PAGES}) == len(PAGES)


@pytest.mark.parametrize("size", SIZES)
async def test_no_page_goes_without_devices_disk_jobs_alerts_and_keys(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=295.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "full in")
        for page in PAGES:
            await screen.pilot.press(page.key)
            await screen.until(lambda page=page: screen.app.screen.query(".page-tabs") and "rtx-lab" in screen.lines[0])
            if page.name != "overview":
                await screen.until_shown(f"▸{page.key} {page.title[: title_letters(size[0])]}")
            await screen.until_shown("/workspace", "full in", "extraction", "▶", "✗ GPU 6 reported XID 63")
            rows = [line for line in screen.lines if line.lstrip().startswith("GPU")]
            for index in range(8):
                assert any(f"GPU {index} " in row or f" {index} " in row for row in rows), (page, index, screen.text)
            assert "✗ GPU 6 reported XID 63" in screen.lines[-2]
            assert "q Quit" in screen.lines[-1] or size[0] < 80


async def test_escape_and_1_go_back_to_the_overview(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(80, 24)) as screen:
        await screen.until_shown("step 225/400  loss")
        for key in ("escape", "1"):
            await screen.pilot.press("2")
            await screen.until_shown("▸2 Pipeline", "Jobs")
            await screen.pilot.press(key)
            await screen.until(lambda: screen.app.screen is screen.app._overview)


async def test_a_click_on_a_tab_opens_its_page(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss", "7 Server")
        column = screen.lines[1].index("7 Server")
        await screen.pilot.click(".page-tabs", offset=(column, 0))
        await screen.until_shown("▸7 Server", "At work")


async def test_the_palette_has_the_pages(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("ctrl+p")
        await screen.pilot.press(*"pipeline")
        await screen.until_shown("Pipeline The newest run")
        await screen.pilot.press("down", "enter")
        await screen.until_shown("▸2 Pipeline")


async def test_a_finished_run_shows_what_each_stage_took_and_made(embedded_run, show) -> None:
    async with show(embedded_run, until=510.0, size=(120, 50)) as screen:
        await screen.until_shown("✓ promote")
        await screen.pilot.press("2")
        await screen.until_shown("✓ training", "2:34", "coverage 94.5%", "drafter", "Made", "release")
        assert screen.text.count("runs/embedded/drafter  ") == 1


async def test_a_run_says_what_it_was_made_from(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(120, 50)) as screen:
        await screen.until_shown("step 225/400  loss")
        plan = next(each.what for each in embedded_run if isinstance(each.what, RunPlan))
        run = screen.app._state.newest_run()
        await screen.send(JobChanged(job=msgspec.structs.replace(run, spec=RunSpec(run=plan.run))))
        await screen.pilot.press("2")
        await screen.until_shown("target", "smollm2-135m-instruct", "held out", "smollm2_eval.jsonl")


async def test_what_lies_on_the_disks_says_what_can_go(embedded_run, show) -> None:
    entries = [
        StorageEntry(path="/r/runs/old/store", kind="store", bytes=5 << 30, files=12, modified_at=0.0),
        StorageEntry(path="/r/jobs/a", kind="job", bytes=1 << 20, files=3, modified_at=0.0, kept_because="in use"),
    ]
    gone = TrashEntry(name="t1", path="/r/trash/t1", origin="/r/x", bytes=1, files=1, trashed_at=0.0, trashed_by="ann")
    async with show(embedded_run, until=180.0, size=(80, 24)) as screen:
        screen.session.storage = StorageReport(root="/r", mounts=[], entries=entries, trash=[gone])
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("6")
        await screen.until_shown("  runs/old/store", "5.0 GiB", "m moves it into the trash")
        await screen.pilot.press("down")
        await screen.until_shown("stays: in use")
        await screen.pilot.press("down")
        await screen.until_shown("in the trash, from /r/x, by ann")


async def test_a_question_that_failed_is_told_on_its_page(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(80, 24)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("6")
        await screen.until_shown("✗ the recording has no look at the disks' directories")


async def test_who_changed_what_is_on_the_page_of_the_hosts(embedded_run, show) -> None:
    refused = JournalEntry(
        at=0.0,
        actor="mcp:planner",
        origin=None,
        action="reclaim",
        subject="runs/old",
        summary="",
        plan="abc",
        op_id="1",
        outcome="refused",
        code=ErrorCode.CONFLICT,
        message="what lies there changed",
        ended_at=1.0,
    )
    done = msgspec.structs.replace(
        refused, action="stop", subject="run-1", summary="enough", outcome="done", message=None
    )
    async with show(embedded_run, until=180.0, size=(120, 35)) as screen:
        screen.session.journal = [refused, done]
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("8")
        await screen.until_shown("Changes asked of this host", "✗ mcp:planner", "refused: what lies there changed")
        await screen.until_shown("stop run-1  enough")


async def test_a_broken_file_of_hosts_is_told_on_their_page(embedded_run, show, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with show(embedded_run, until=180.0, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("8")
        await screen.until_shown("no other host", "root")
        place = tmp_path / "roost/roost.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("[hosts.a]\n")
        await screen.until_shown("✗", "[hosts.a]")
        place.write_text('[hosts.a]\naddress = "a.example.com"\n')
        await screen.until(lambda: "[hosts.a]" not in screen.text)
