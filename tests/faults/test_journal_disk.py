"""The journal on a disk that is really full: it is written as long as the reserve lasts, and never stands in the way."""

from pathlib import Path

from remote.artifacts import reserve
from remote.jobs.journal import Change, Journal


def test_what_frees_a_full_disk_goes_on_and_is_on_record_while_the_reserve_lasts(small_disk, tmp_path):
    root = small_disk.path / "root"
    root.mkdir()
    reserve.keep(root)
    journal = Journal(root, tmp_path / "locks")
    small_disk.fill()
    huge = small_disk.path / "fillers"
    with journal.recording(Change(actor="cli", action="reclaim", subject="runs/huge")):
        (entry,) = journal.read().entries
        assert entry.outcome == "unknown"
    assert journal.read().entries[0].outcome == "done"

    while reserve.give_up(root):
        pass
    small_disk.fill()
    newer = root / "journal" / "newer.jsonl"
    _fill_last_block(newer)
    with journal.recording(Change(actor="cli", action="reclaim", subject="runs/huge-2")):
        small_disk.make_room()
    assert not any(huge.iterdir())
    with journal.recording(Change(actor="cli", action="reclaim", subject="runs/huge-3")):
        pass
    assert [entry.subject for entry in journal.read().entries if entry.outcome == "done"] == [
        "runs/huge-3",
        "runs/huge",
    ]


def _fill_last_block(path: Path) -> None:
    """Leave no room in the file's own last block, either."""
    with path.open("ab") as file:
        file.write(b" " * (-path.stat().st_size % 4096 - 1) + b"\n")
