"""The host's journal: what is on record, what a crash or a full disk does to it, how it stays small."""

import errno
import os
import threading

import pytest

from remote.artifacts import reserve
from remote.errors import Conflict
from remote.jobs.journal import Change, Journal
from remote.protocol.errors import ErrorCode


@pytest.fixture
def root(tmp_path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def journal(root):
    return Journal(root, root.parent / "locks")


def change(subject: str = "runs/old", **more) -> Change:
    return Change(actor="cli", action="reclaim", subject=subject, **more)


def carry_out(journal: Journal, subject: str) -> None:
    with journal.recording(change(subject)):
        pass


def test_a_change_is_on_record_before_it_takes_effect_and_with_its_end(journal):
    with journal.recording(change(summary="because", plan="abc", op_id="op-1")):
        (begun,) = journal.read().entries
        assert (begun.outcome, begun.ended_at) == ("unknown", None)
    (done,) = journal.read().entries
    assert (done.actor, done.action, done.subject, done.plan, done.op_id) == (
        "cli",
        "reclaim",
        "runs/old",
        "abc",
        "op-1",
    )
    assert (done.outcome, done.code, done.message) == ("done", None, None)
    assert done.ended_at >= done.at


def test_refusals_and_failures_are_on_record_with_their_words(journal):
    with pytest.raises(Conflict), journal.recording(change("a")):
        raise Conflict("it changed")
    with pytest.raises(ZeroDivisionError), journal.recording(change("b")):
        _ = 1 / 0
    failed, refused = journal.read().entries
    assert (refused.outcome, refused.code, refused.message) == ("refused", ErrorCode.CONFLICT, "it changed")
    assert failed.outcome == "failed"
    assert "ZeroDivisionError" in failed.message


def test_a_torn_line_hides_nothing_but_itself(journal, root):
    carry_out(journal, "first")
    with (root / "journal" / "newer.jsonl").open("ab") as file:
        file.write(b'{"type":"begun","number":"12')
    carry_out(journal, "second")
    assert [entry.subject for entry in journal.read().entries] == ["second", "first"]


def test_pages_are_newest_first_and_say_what_they_left_out(journal):
    for number in range(5):
        carry_out(journal, f"change-{number}")
    page = journal.read(limit=2, skip=1)
    assert [entry.subject for entry in page.entries] == ["change-3", "change-2"]
    assert page.omitted == 2
    later = journal.read(since=page.entries[0].at)
    assert [entry.subject for entry in later.entries] == ["change-4", "change-3"]


def test_it_stays_small_and_keeps_the_newest(root):
    journal = Journal(root, root.parent / "locks", file_bytes=4000)
    for number in range(100):
        carry_out(journal, f"{number:03}" + "x" * 1000)
    sizes = [path.stat().st_size for path in (root / "journal").iterdir()]
    assert sum(sizes) < 2 * (4000 + 600)
    subjects = [entry.subject[:3] for entry in journal.read().entries]
    assert subjects == [f"{number:03}" for number in range(99, 99 - len(subjects), -1)]
    assert len(subjects) >= 5


def test_several_at_once_lose_nothing(journal, root):
    def work(name: str) -> None:
        own = Journal(root, root.parent / "locks")
        for number in range(10):
            carry_out(own, f"{name}-{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = journal.read().entries
    assert len({entry.subject for entry in entries}) == len(entries) == 40
    assert {entry.outcome for entry in entries} == {"done"}


def test_a_full_disk_costs_the_entry_and_not_the_change(journal, root, monkeypatch):
    reserve.keep(root)
    carry_out(journal, "before")
    write = os.write

    def no_room(descriptor, data):
        if b'"begun"' in data or b'"ended"' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", no_room)
    carried_out = []
    with journal.recording(change("runs/huge")):
        carried_out.append("runs/huge")
    monkeypatch.undo()
    assert carried_out
    assert [entry.subject for entry in journal.read().entries] == ["before"]
    assert len(list((root / reserve.NAME).iterdir())) >= 8


def test_one_that_is_closed_is_only_read(journal, root):
    carry_out(journal, "before")
    carry_out(Journal(root, root.parent / "locks", is_closed=True), "after")
    assert [entry.subject for entry in journal.read().entries] == ["before"]
