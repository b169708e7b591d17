"""The journal of a root: every change that was asked for, a line when it begins and a line when it ends.

Both lines are appended under a lock and made durable, so that a change is on record before it takes effect. Two files of bounded size
take turns. A disk without room costs an entry, never the change: otherwise nobody could free it.
"""

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remote.artifacts import reserve
from remote.errors import RoostError
from remote.jobs import locks
from remote.jobs.records import read_bytes
from remote.protocol.errors import ErrorCode
from remote.protocol.journal import MOST_ENTRIES, JournalAction, JournalEntry, JournalOutcome, JournalPage

FILE_BYTES = 4 << 20
"""When the newer file is longer it becomes the older one; the journal takes at most twice that, some six thousand changes at least."""

_LOCK_TIMEOUT_S = 10.0
_SPARE_PIECES = 8
"""So much of the reserve is left to the last words of jobs."""
_TEXT = 300
_REFUSALS = {ErrorCode.USAGE, ErrorCode.NOT_FOUND, ErrorCode.CONFLICT, ErrorCode.PRECONDITION, ErrorCode.CONFIRMATION}
_log = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks for, before it is done."""

    actor: str
    action: JournalAction
    subject: str
    summary: str = ""
    plan: str | None = None
    op_id: str | None = None
    approval: str | None = None


def origin() -> str | None:
    """The address that the connection of this process came from; None where there is none."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    return connection[0] if connection else None


class _Begun(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    number: str
    at: float
    origin: str | None
    change: Change


class _Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    number: str
    at: float
    outcome: JournalOutcome
    code: ErrorCode | None = None
    message: str | None = None


_decoder: msgspec.json.Decoder[_Begun | _Ended] = msgspec.json.Decoder(_Begun | _Ended)


class Journal:
    """The journal below one root; safe to use from several threads and processes at once. One that `is_closed` is only read."""

    def __init__(
        self, root: Path, lock_directory: Path, *, is_closed: bool = False, file_bytes: int = FILE_BYTES
    ) -> None:
        self._root = root
        self._newer, self._older = root / "journal" / "newer.jsonl", root / "journal" / "older.jsonl"
        self._lock = lock_directory / "journal.lock"
        self._file_bytes = file_bytes
        self._is_closed = is_closed

    @contextmanager
    def recording(self, change: Change) -> Iterator[None]:
        """Put on record that `change` begins, and what comes of it; the errors of what runs within go on."""
        number = self._begin(change)
        try:
            yield
        except RoostError as error:
            code = error.info.code
            outcome: JournalOutcome = "refused" if code in _REFUSALS else "failed"
            self._end(number, outcome, code, error.info.message)
            raise
        except BaseException as error:
            self._end(number, "failed", ErrorCode.FAILED, f"{type(error).__name__}: {error}")
            raise
        self._end(number, "done")

    def put_refusal(self, change: Change, code: ErrorCode, message: str) -> None:
        """Put on record what was refused before it came here."""
        self._end(self._begin(change), "refused", code, message)

    def read(self, *, since: float | None = None, limit: int = MOST_ENTRIES, skip: int = 0) -> JournalPage:
        """The newest entries, newest first; lines that a crash has torn are left out."""
        begun: dict[str, _Begun] = {}
        ended: dict[str, _Ended] = {}
        for line in self._lines():
            match _decoded(line):
                case _Begun() as one:
                    begun[one.number] = one
                case _Ended() as one:
                    ended[one.number] = one
                case None:
                    pass
        wanted = [one for one in begun.values() if since is None or one.at >= since]
        wanted.sort(key=lambda one: one.at, reverse=True)
        wanted = wanted[max(0, skip) :]
        most = max(0, min(limit, MOST_ENTRIES))
        entries = [_entry(one, ended.get(one.number)) for one in wanted[:most]]
        return JournalPage(entries=entries, omitted=len(wanted) - len(entries))

    def _lines(self) -> Iterator[bytes]:
        for path in (self._older, self._newer):
            yield from (read_bytes(str(path)) or b"").split(b"\n")

    def _begin(self, change: Change) -> str:
        number = secrets.token_hex(8)
        shortened = msgspec.structs.replace(change, subject=change.subject[:_TEXT], summary=change.summary[:_TEXT])
        self._append(_Begun(number=number, at=time.time(), origin=origin(), change=shortened))
        return number

    def _end(self, number: str, outcome: JournalOutcome, code: ErrorCode | None = None, message: str = "") -> None:
        self._append(_Ended(number=number, at=time.time(), outcome=outcome, code=code, message=message[:_TEXT] or None))

    def _append(self, line: "_Begun | _Ended") -> None:
        if self._is_closed:
            return
        data = msgspec.json.encode(line) + b"\n"
        try:
            with locks.held(self._lock, _LOCK_TIMEOUT_S):
                reserve.insist(self._root, lambda: self._write(data), _SPARE_PIECES)
        except OSError as error:
            _log.warning("the journal could not be written: %s", error)

    def _write(self, data: bytes) -> None:
        self._newer.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._newer, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            piece = b"\n" + data if is_torn else data
            try:
                if os.write(descriptor, piece) < len(piece):
                    os.ftruncate(descriptor, size)
                    os.write(descriptor, piece)
                os.fdatasync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        if size + len(piece) > self._file_bytes:
            self._newer.replace(self._older)


def _decoded(line: bytes) -> "_Begun | _Ended | None":
    try:
        return _decoder.decode(line) if line else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _entry(begun: _Begun, ended: _Ended | None) -> JournalEntry:
    change = begun.change
    return JournalEntry(
        at=begun.at,
        actor=change.actor,
        origin=begun.origin,
        action=change.action,
        subject=change.subject,
        summary=change.summary,
        plan=change.plan,
        op_id=change.op_id,
        outcome="unknown" if ended is None else ended.outcome,
        code=None if ended is None else ended.code,
        message=None if ended is None else ended.message,
        ended_at=None if ended is None else ended.at,
        approval=change.approval,
    )
