"""Reading what the work writes: its log by absolute byte offset, its progress by sequence number."""

import os
from pathlib import Path

import msgspec

from remote.jobs.log_bound import read_start
from remote.protocol.codec import MAX_LINE_BYTES, ProtocolError, decode_progress_record
from remote.protocol.progress import ProgressRecord
from remote.redaction import NOTHING, Redactor

MAX_LOG_PAGE_BYTES = 256 << 10
"""Base64 of a page stays far below the limit of a line."""

MAX_PROGRESS_PAGE_BYTES = 512 << 10
MAX_LAST_LINE_BYTES = 400
_TAIL_BYTES = 4 << 10


class LogBytes(msgspec.Struct, frozen=True):
    """Bytes `[offset, offset + len(data))` of a log whose readable range is `[start, size)`."""

    offset: int
    data: bytes
    start: int
    size: int


def read_log(path: Path, offset: int | None, limit: int) -> LogBytes:
    """At most `limit` bytes (and at most a page) from `offset`; None means the end of the log."""
    limit = max(0, min(limit, MAX_LOG_PAGE_BYTES))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return LogBytes(0, b"", 0, 0)
    try:
        size = os.fstat(descriptor).st_size
        at, data = _read_from(descriptor, size, offset, limit, start := min(read_start(path.parent), size))
        # The head may have been cut off while these bytes were read: what was a hole by then is not passed on.
        if (now := min(read_start(path.parent), size)) != start:
            at, data = _read_from(descriptor, size, offset, limit, start := now)
        return LogBytes(at, data, start, size)
    finally:
        os.close(descriptor)


def _read_from(descriptor: int, size: int, offset: int | None, limit: int, start: int) -> tuple[int, bytes]:
    at = max(start, size - limit) if offset is None else min(max(start, offset), size)
    return at, os.pread(descriptor, limit, at)


def read_last_line(path: str, redactor: Redactor = NOTHING, *, may_grow: bool = True) -> tuple[int, str]:
    """The size of a log and its last line that is not blank, at most 400 bytes of it; (0, "") when there is none.

    What `redactor` knows is covered, and the beginning of a value is left out while its rest may come.
    """
    size, window = _read_tail(path, _TAIL_BYTES + redactor.margin)
    tail = redactor.page(window, max(0, len(window) - _TAIL_BYTES), len(window), may_grow=may_grow)
    lines = tail.replace(b"\r", b"\n").split(b"\n")
    line = next((text for text in reversed(lines) if text.strip()), b"").strip()
    return size, line[:MAX_LAST_LINE_BYTES].decode(errors="replace")


def read_last_progress(path: str) -> ProgressRecord | None:
    """The last whole progress record that this release can read."""
    span = _TAIL_BYTES
    while True:
        size, tail = _read_tail(path, span)
        whole = tail[: tail.rfind(b"\n") + 1]
        lines = whole.splitlines()
        for line in reversed(lines if span >= size else lines[1:]):
            record = _decode(line)
            if record is not None:
                return record
        if span >= size or span > MAX_LINE_BYTES:
            return None
        span *= 8


class ProgressReader:
    """Reads the progress records of a job in order, from where it stopped the last time."""

    def __init__(self, path: Path, after_seq: int) -> None:
        self._path = path
        self._after_seq = after_seq
        self._offset = 0

    def read(self, limit: int) -> list[ProgressRecord]:
        """The next records, at most `limit` and at most half a mebibyte of them; empty when there are none yet."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            return self._read(descriptor, limit)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, limit: int) -> list[ProgressRecord]:
        records: list[ProgressRecord] = []
        taken = 0
        while block := os.pread(descriptor, MAX_LINE_BYTES, self._offset):
            whole = block[: block.rfind(b"\n") + 1]
            if not whole and len(block) < MAX_LINE_BYTES:
                break
            for line in (whole or block).splitlines(keepends=True):
                if len(records) >= limit or (records and taken + len(line) > MAX_PROGRESS_PAGE_BYTES):
                    return records
                self._offset += len(line)
                record = _decode(line)
                if record is not None and record.seq > self._after_seq:
                    records.append(record)
                    taken += len(line)
                    self._after_seq = record.seq
        return records


def _read_tail(path: str, span: int) -> tuple[int, bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, b""
    try:
        size = os.fstat(descriptor).st_size
        return size, os.pread(descriptor, span, max(0, size - span))
    finally:
        os.close(descriptor)


def _decode(line: bytes) -> ProgressRecord | None:
    try:
        return decode_progress_record(line)
    except ProtocolError:
        return None
