"""Deleting for good is a job: it shows how far it is, can be stopped and killed, and goes on where it was."""

import os
import signal
import sys
from pathlib import Path

import pytest

from remote.artifacts import trash
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished, Job
from remote.protocol.progress import FilesRemoved
from remote.protocol.specs import PurgeSpec
from tests.jobs.workshop import RELEASE, Workshop

FILES = 20_000


@pytest.fixture
def store(workshop: Workshop) -> JobStore:
    return JobStore(workshop.root, RELEASE, sys.executable)


def make_entry(root: Path, files: int) -> Path:
    origin = root / "runs/big"
    for number in range(files):
        directory = origin / f"part-{number // 1000}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number}.bin").write_bytes(b"x")
    (origin / "link").symlink_to(root / "precious")
    (origin / "links").mkdir()
    (origin / "links/directory").symlink_to(root)
    return Path(trash.put(root / "trash", origin, ["."], actor="ann").path)


def purge(store: JobStore, entry: Path, number: int) -> Job:
    spec = PurgeSpec(entries=[str(entry)])
    return store.start(f"purge-{number}", spec, actor="ann", op_id=f"purge-{number}")


def is_finished(job: Job) -> bool:
    return isinstance(job.state, Finished)


def removed(job: Job) -> int:
    event = job.last_progress.event if job.last_progress is not None else None
    return event.files_done if isinstance(event, FilesRemoved) else 0


def test_a_purge_that_is_killed_goes_on_and_follows_no_link(store: JobStore, workshop: Workshop) -> None:
    precious = workshop.root / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    entry = make_entry(workshop.root, FILES)
    job = purge(store, entry, 1)
    workshop.until("purge-1", lambda job: removed(job) > 0)
    os.kill(job.state.pid, signal.SIGKILL)
    workshop.until("purge-1", is_finished)
    assert trash.is_entry(entry), "what is half gone is still an entry of the trash"
    left = trash.size_of(entry / "content").files
    assert 0 < left < FILES
    purge(store, entry, 2)
    done = workshop.until("purge-2", is_finished)
    assert done.state.outcome == "succeeded"
    assert done.result.summary["files"] == left
    assert not entry.exists()
    assert (precious / "thesis.txt").read_text() == "years of work"
    purge(store, entry, 3)
    assert workshop.until("purge-3", is_finished).state.outcome == "succeeded", "gone already is done"


def test_a_purge_can_be_stopped(store: JobStore, workshop: Workshop) -> None:
    entry = make_entry(workshop.root, FILES)
    purge(store, entry, 1)
    workshop.until("purge-1", lambda job: removed(job) > 0)
    store.stop("purge-1", actor="ben", op_id="stop", reason="a mistake")
    assert workshop.until("purge-1", is_finished).state.outcome == "stopped"
    assert trash.is_entry(entry)


def test_only_the_trash_is_purged(store: JobStore, workshop: Workshop) -> None:
    live = workshop.root / "runs/live"
    live.mkdir(parents=True)
    (live / "data").write_bytes(b"x")
    (workshop.root / "trash").mkdir()
    (workshop.root / "trash/alias").symlink_to(live)
    for number, path in enumerate((live, workshop.root, workshop.root / "trash", workshop.root / "trash/alias")):
        purge(store, path, number)
        state = workshop.until(f"purge-{number}", is_finished).state
        assert (state.outcome, state.exit_code) == ("failed", 5)
        assert "no entry of the trash" in state.reason
    assert (live / "data").exists()
