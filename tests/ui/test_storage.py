"""The disks' page: nothing goes, comes back or is deleted before a person has seen exactly what."""

from contextlib import asynccontextmanager

import pytest

from console.ui.screens.dialogs import Confirm, ConfirmByName
from remote.protocol.storage import KeptItem, ReclaimPlan, StorageEntry, StorageReport, TrashEntry

STORE = StorageEntry(path="/r/runs/old/store", kind="store", bytes=5 << 30, files=12, modified_at=0.0)
MAPPING = StorageEntry(
    path="/r/runs/old/mapping", kind="mapping", bytes=1 << 20, files=3, modified_at=0.0, kept_because="it is small"
)
GONE = TrashEntry(
    name="t1", path="/r/trash/t1", origin="/r/runs/x", bytes=1 << 30, files=7, trashed_at=0.0, trashed_by="ann"
)
PLAN = ReclaimPlan(
    paths=["/r/runs/old"],
    bytes=5 << 30,
    files=12,
    kept=[KeptItem(path="/r/runs/old/mapping", reason="it is small")],
    problems=[],
    token="abc-def",
    expires_at=1796000000.0,
)


@asynccontextmanager
async def opened(show, records, *, size=(80, 24), trash=(GONE,)):
    async with show(records, until=510.0, size=size) as screen:
        screen.session.storage = StorageReport(root="/r", mounts=[], entries=[STORE, MAPPING], trash=list(trash))
        screen.session.reclaim_plan = PLAN
        await screen.until_shown("✓ promote")
        await screen.pilot.press("6")
        await screen.until_shown("  runs/old/store")
        yield screen


async def answer(screen, words: str | None = None) -> None:
    await screen.until(lambda: screen.app.screen.query("#answer"))
    if words is not None:
        screen.app.screen.query_one("#answer").value = words
    await screen.pilot.press("enter")


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
async def test_reclaim_says_what_goes_by_kind_and_what_stays_and_no_is_the_default(embedded_run, show, size) -> None:
    async with opened(show, embedded_run, size=size) as screen:
        await screen.pilot.press("m")
        await screen.until(lambda: screen.app.screen.query("#answer"))
        assert screen.app.screen.query_one("#answer").value == "/r/runs/old/store"
        await answer(screen, "runs/old")
        await screen.until_shown("Reclaim on embedded?", "5.0 GiB in 12 files", "store 5.0 GiB", "it is small")
        await screen.until_shown("roost storage reclaim /r/runs/old --plan abc-def", "No (n)")
        await screen.pilot.press("enter")
        await screen.until(lambda: not isinstance(screen.app.screen, Confirm))
        assert screen.session.reclaimed == []
        await screen.pilot.press("m")
        await answer(screen)
        await screen.until_shown("Reclaim on embedded?")
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.reclaimed == ["abc-def"])


async def test_what_must_not_go_is_told_with_its_reason(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        screen.session.reclaim_plan = ReclaimPlan(
            paths=[], bytes=0, files=0, kept=[], problems=["/r/core is nothing of a run"], token="", expires_at=0.0
        )
        await screen.pilot.press("m")
        await answer(screen, "core")
        told = "/r/core is nothing of a run"
        await screen.until(lambda: any(told in notice.message for notice in screen.app._notifications))
        assert screen.session.reclaimed == []


async def test_undo_puts_the_newest_of_the_trash_back(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        await screen.pilot.press("u")
        await screen.until_shown("Put it back?", "/r/runs/x", "roost storage restore t1")
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.restored == ["t1"])


async def test_only_the_hosts_name_deletes_for_good(embedded_run, show) -> None:
    async with opened(show, embedded_run) as screen:
        await screen.pilot.press("x")
        await screen.until_shown("Delete for good?", "1.0 GiB in 7 files", "Type embedded")
        await answer(screen, "yes")
        await screen.until(lambda: any("nothing was done" in notice.message for notice in screen.app._notifications))
        assert screen.session.purged == []
        await answer(screen, "embedded")
        await screen.until(lambda: screen.session.purged == ["t1"])
        await screen.until(lambda: not isinstance(screen.app.screen, ConfirmByName))


async def test_with_an_empty_trash_there_is_nothing_to_bring_back_or_to_delete(embedded_run, show) -> None:
    async with opened(show, embedded_run, trash=()) as screen:
        for key in "ux":
            screen.app.clear_notifications()
            await screen.pilot.press(key)
            await screen.until(lambda: any("trash is empty" in each.message for each in screen.app._notifications))
