"""The progress of a job under a disk that takes only some of it: whole records, no gaps, nothing lost but what was replaced."""

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from remote.agents.progress_file import ProgressFile
from remote.protocol.codec import decode_progress_record, encode_line
from remote.protocol.progress import FilesCopied, Note, Progress, ProgressRecord

events = st.lists(
    st.builds(Note, level=st.just("info"), text=st.text(max_size=20))
    | st.builds(FilesCopied, bytes_done=st.integers(0, 99), bytes_total=st.just(99)),
    min_size=1,
    max_size=12,
)
takes = st.lists(st.none() | st.integers(0, 200), max_size=30)
"""How much of each write the disk takes: None for all, else so many bytes and ENOSPC from then on."""


class Disk:
    """`os.write` of a disk that is full now and then, as a real one is: a short write first, then the error."""

    def __init__(self, takes: list[int | None]) -> None:
        self.takes = takes
        self.is_full = False
        self.write = os.write

    def __call__(self, descriptor: int, data: bytes) -> int:
        if self.is_full:
            self.is_full = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room = self.takes.pop(0) if self.takes else None
        if room is None or room >= len(data):
            return self.write(descriptor, data)
        if room == 0:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        self.is_full = True
        return self.write(descriptor, data[:room])


def read(path: Path) -> list[ProgressRecord]:
    content = path.read_bytes()
    assert content == b"" or content.endswith(b"\n"), "a torn record"
    return [decode_progress_record(line) for line in content.splitlines()]


def without_replaced(told: list[Progress]) -> list[Progress]:
    """What nobody may miss: every note."""
    return [event for event in told if isinstance(event, Note)]


@given(events, takes)
def test_a_full_disk_tears_nothing_and_loses_no_note(told: list[Progress], takes: list[int | None]) -> None:
    with TemporaryDirectory() as home:
        path = Path(home) / "progress.jsonl"
        file = ProgressFile(path, Path(home))
        with patch("os.write", Disk(list(takes))):
            for number, event in enumerate(told):
                file.tell(event, float(number))
                assert [record.seq for record in read(path)] == list(range(1, len(read(path)) + 1))
        assert file.catch_up()
        records = read(path)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert without_replaced([record.event for record in records]) == without_replaced(told)
        assert records[-1].event == told[-1]
        assert [record.at for record in records] == sorted(record.at for record in records)


@given(events, st.integers(0, 10_000))
def test_a_file_that_was_cut_anywhere_goes_on_after_its_last_whole_record(told: list[Progress], cut: int) -> None:
    lines = [encode_line(ProgressRecord(seq=seq, at=0.0, event=event)) for seq, event in enumerate(told, start=1)]
    whole = b"".join(lines)
    with TemporaryDirectory() as home:
        path = Path(home) / "progress.jsonl"
        path.write_bytes(whole[: cut % (len(whole) + 1)])
        kept = path.read_bytes().count(b"\n")
        ProgressFile(path, Path(home)).tell(told[0], 1.0)
        assert path.read_bytes().startswith(b"".join(lines[:kept]))
        assert [record.seq for record in read(path)] == list(range(1, kept + 2))
