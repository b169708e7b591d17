"""Writing where there may be no room: check first, clean up after, wait until there is some, and say so meanwhile.

What a full disk looks like depends on who writes: OSError with ENOSPC or EDQUOT; numpy's OSError without a number
(`N requested and M written`); safetensors' own error with `os error 28` in its words; torch's RuntimeError from a stream that
broke (`unexpected pos`). Where the words prove nothing, a small write beside the file does.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from remote.artifacts import reserve
from remote.telemetry.figures import bytes_text

PAUSE_NAME = "pause.json"
POLL_S = 1.0

_LONGEST_RETRY_S = 30.0
_UNCOUNTED = 1 << 62
_PROBE_BYTES = 256 << 10
_FULL_WORDS = ("No space left on device", "Disk quota exceeded", "os error 28", "os error 122")
_MUTE_WORDS = ("requested and", "unexpected pos", "iostream error", "PytorchStreamWriter failed", "file write failed")

_T = TypeVar("_T")


class Stopped(Exception):
    """The work ended early because it was asked to."""


class _NoRoom(Exception):
    """A write found no room, in the words of whoever said so."""


class Free(NamedTuple):
    """What a disk has left for us: bytes, and inodes where it counts them."""

    bytes: int
    inodes: int | None


class Shortage(NamedTuple):
    """Why a write waits: what it needs (None: it cannot be told) and what there is; `refusal` is the system's word for it."""

    path: Path
    free: Free
    bytes_needed: int | None
    inodes_needed: int
    refusal: str = ""

    @property
    def reason(self) -> str:
        """One sentence for people."""
        free = "free space unknown" if self.free.bytes == _UNCOUNTED else f"{bytes_text(self.free.bytes)} free"
        inodes = "" if self.free.inodes is None else f"{self.free.inodes:,} inodes free"
        if self.free.inodes is not None and self.free.inodes < self.inodes_needed:
            return f"no inodes left to write {self.path}: {self.inodes_needed} needed, {inodes}, {free}"
        there = f"{free}, {inodes}" if inodes else free
        if self.bytes_needed is not None and self.free.bytes < self.bytes_needed:
            return f"no room to write {self.path}: {bytes_text(self.bytes_needed)} needed, {there}"
        return f"no room to write {self.path}: {self.refusal}, though the disk has {there} (is there a quota?)"


class _Pause(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1
    since: float
    reason: str
    path: str | None = None
    bytes_free: int | None = None
    inodes_free: int | None = None
    bytes_needed: int | None = None


class Waits(NamedTuple):
    """Another job of this one, which is paused: that is why this one does not get on."""

    job_id: str
    since: float
    reason: str


def _pause_of(cause: Shortage | Waits, since: float) -> _Pause:
    match cause:
        case Waits():
            return _Pause(since=cause.since, reason=f"{cause.job_id}: {cause.reason}")
        case Shortage(path=path, free=free):
            return _Pause(
                since=since,
                reason=cause.reason,
                path=str(path),
                bytes_free=free.bytes,
                inodes_free=free.inodes,
                bytes_needed=cause.bytes_needed,
            )


def free_at(path: Path) -> Free:
    """What is left where `path` lies or will lie."""
    disk = os.statvfs(_nearest(path))
    # Some network file systems count nothing: what they have shows when it is written.
    free_bytes = disk.f_bavail * disk.f_frsize if disk.f_blocks else _UNCOUNTED
    return Free(free_bytes, disk.f_favail if disk.f_files else None)


def find_shortage(path: Path, bytes_needed: int | None, inodes_needed: int = 1) -> Shortage | None:
    """What keeps a write of that size from succeeding; None when nothing does as far as the disk says."""
    free = free_at(path)
    has_bytes = free.bytes >= max(1, bytes_needed or 0)
    has_inodes = free.inodes is None or free.inodes >= inodes_needed or _probe(_nearest(path), 0) is None
    if has_bytes and has_inodes:
        return None
    return Shortage(path, free, max(1, bytes_needed or 0), inodes_needed)


def full_disk_words(error: BaseException, path: Path) -> str | None:
    """How `error` says that there was no room for `path`; None when it is about something else."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and reserve.is_full(seen):
            return seen.strerror or str(seen)
        words = next((words for words in _FULL_WORDS if words in str(seen)), None)
        if words is not None:
            return words
        seen = seen.__cause__ or seen.__context__
    is_mute = isinstance(error, RuntimeError | OSError) and any(words in str(error) for words in _MUTE_WORDS)
    return _probe(_nearest(path), _PROBE_BYTES) if is_mute else None


def _probe(directory: Path, size: int) -> str | None:
    """How the system refuses a file of `size` bytes in `directory`; None when it takes it."""
    probe = directory / f".probe-{secrets.token_hex(4)}"
    try:
        with probe.open("xb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror if reserve.is_full(error) else None
    finally:
        probe.unlink(missing_ok=True)
    return None


def _nearest(path: Path) -> Path:
    """The directory that exists on the way to `path`."""
    return next((place for place in (path, *path.parents) if place.is_dir()), Path("/"))


def _attempt(action: Callable[[], _T], path: Path, clean: Callable[[], object] | None) -> _T:
    """Do `action`; when it fails, clean up after it, and raise _NoRoom when it failed for want of room at `path`."""
    try:
        return action()
    except Exception as error:
        words = full_disk_words(error, path)
        if clean is not None:
            clean()
        if words is None:
            raise
        raise _NoRoom(words) from error


class Room:
    """The waiting for room of one job, of any of its threads; while one of them waits, `pause.json` says why."""

    def __init__(
        self, directory: Path, root: Path, stop_requested: threading.Event, say: Callable[[str], None]
    ) -> None:
        self._record = directory / PAUSE_NAME
        self._root = root
        self._stop_requested = stop_requested
        self._say = say
        self._lock = threading.Lock()
        self._waiting: dict[object, _Pause] = {}
        self._record.unlink(missing_ok=True)

    def write(
        self,
        path: Path,
        bytes_needed: int | None,
        action: Callable[[], _T],
        *,
        inodes_needed: int = 1,
        clean: Callable[[], object] | None = None,
    ) -> _T:
        """Do `action`, which writes `path`, as often as it takes until there was room for it.

        `action` must be one that can be repeated; `clean` removes what a failed one left half-written. Raises Stopped when a
        stop is asked for while it waits, and whatever `action` raises that is not about room.
        """
        retry_s, has_grown = POLL_S, True
        with self._waiter() as pause:
            while True:
                while (shortage := find_shortage(path, bytes_needed, inodes_needed)) is not None:
                    pause(shortage)
                    self._rest()
                    has_grown = True
                if has_grown:
                    pause(None)
                try:
                    return _attempt(action, path, clean)
                except _NoRoom as refusal:
                    refused = Shortage(path, free_at(path), bytes_needed, inodes_needed, str(refusal))
                pause(refused)
                has_grown = self._rest_until_grown(refused, retry_s)
                retry_s = min(2 * retry_s, _LONGEST_RETRY_S)

    def wait_while(self, find: Callable[[], Shortage | None]) -> None:
        """Be paused as long as `find` finds a shortage of somebody else's that this job depends on; raises Stopped."""
        with self._waiter() as pause:
            while (shortage := find()) is not None:
                pause(shortage)
                self._rest()

    @contextmanager
    def beside_others(self) -> Iterator[Callable[[Waits | None], None]]:
        """For a job that waits for others: called with one that is paused it is paused, too, until called with None or left."""
        with self._waiter() as pause:
            yield pause

    def _rest_until_grown(self, before: Shortage, longest_s: float) -> bool:
        """Wait for the disk to have more, but not for ever: a quota may leave what it counts as it is. Whether it has more."""
        deadline = time.monotonic() + longest_s
        while time.monotonic() < deadline:
            self._rest()
            now = free_at(before.path)
            if now.bytes > before.free.bytes or (now.inodes or 0) > (before.free.inodes or 0):
                return True
        return False

    def _rest(self) -> None:
        if self._stop_requested.wait(POLL_S):
            raise Stopped

    @contextmanager
    def _waiter(self) -> Iterator[Callable[[Shortage | Waits | None], None]]:
        """Whoever may have to wait: what it calls with is the job's pause until it calls with None or leaves."""
        me = object()
        try:
            yield lambda cause: self._go_on(me) if cause is None else self._pause(me, cause)
        finally:
            self._go_on(me)

    def _pause(self, me: object, cause: Shortage | Waits) -> None:
        with self._lock:
            known = self._waiting.get(me)
            pause = _pause_of(cause, time.time() if known is None else known.since)
            if pause == known:
                return
            self._waiting[me] = pause
            with suppress(OSError):  # not even the reserve has room: the job waits all the same
                reserve.write_atomic(self._root, self._record, msgspec.json.encode(pause))
        if known is None:
            self._say(f"paused: {pause.reason}; it goes on by itself when there is room")

    def _go_on(self, me: object) -> None:
        with self._lock:
            pause = self._waiting.pop(me, None)
            if pause is None:
                return
            if not self._waiting:
                self._record.unlink(missing_ok=True)
        reserve.keep(self._root)
        self._say(f"goes on after a pause of {time.time() - pause.since:.0f} s")
