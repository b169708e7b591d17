"""The outbox of a root: a file for each notification, with what became of it; it outlives whoever raises and whoever posts."""

import contextlib
import time
from pathlib import Path

import msgspec

from remote.artifacts import reserve
from remote.errors import NotFound
from remote.protocol.notifications import Delivered, GivenUp, Notification, NotificationRecord, Unsent, Waiting

MOST_KEPT = 200
"""So many are kept; of those that wait for nothing more the oldest go."""

_DIRECTORY = "notifications"
_CLOCK_TICK_S = 2.0


class Outbox:
    """The notifications below one root; several processes may add, one posts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / _DIRECTORY
        self._known: tuple[float, list[NotificationRecord]] = (-1.0, [])

    def begin(self) -> float:
        """Make the outbox where there is none; since when there is one, in seconds since the epoch."""
        mark = self._directory / "since"
        with contextlib.suppress(FileExistsError):
            self._directory.mkdir(mode=0o700)
        try:
            return float(mark.read_text())
        except (FileNotFoundError, ValueError):
            now = time.time()
            reserve.write_atomic(self._root, mark, str(now).encode())
            return now

    def take(self, notification: Notification, *, is_wanted: bool) -> NotificationRecord:
        """Make a notification durable, to be posted where that is wanted; one that is there already stays as it is."""
        with contextlib.suppress(NotFound):
            return self.read(notification.notification_id)
        delivery = Waiting(next_at=notification.at) if is_wanted else Unsent()
        record = NotificationRecord(notification=notification, delivery=delivery)
        self.keep(record)
        settled = [each for each in self.list() if not isinstance(each.delivery, Waiting)]
        for old in settled[MOST_KEPT:]:
            self._path(old.notification.notification_id).unlink(missing_ok=True)
        return record

    def keep(self, record: NotificationRecord) -> None:
        """Make a record durable as it is now. Raises OSError."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._path(record.notification.notification_id)
        reserve.write_atomic(self._root, path, msgspec.json.encode(record))

    def read(self, notification_id: str) -> NotificationRecord:
        """One record as it is now; raises NotFound."""
        found = _decoded(self._path(notification_id))
        if found is None:
            raise NotFound(f"there is no notification {notification_id}", next_command="roost notifications list")
        return found

    def list(self) -> "list[NotificationRecord]":
        """All records, newest first; what cannot be read is left out. The files are read again when one changed."""
        try:
            changed_at = self._directory.stat().st_mtime
        except FileNotFoundError:
            return []
        if changed_at != self._known[0]:
            found = [record for path in self._directory.glob("*.json") if (record := _decoded(path)) is not None]
            found.sort(key=lambda record: (-record.notification.at, record.notification.notification_id))
            # Two changes within a tick of the file system's clock look like one.
            self._known = (changed_at if time.time() - changed_at > _CLOCK_TICK_S else -1.0, found)
        return self._known[1]

    def waiting(self) -> "list[NotificationRecord]":
        """Those that are still to be posted, the oldest first."""
        return [each for each in reversed(self.list()) if isinstance(each.delivery, Waiting)]

    def _path(self, notification_id: str) -> Path:
        return self._directory / f"{notification_id}.json"


def is_settled(record: NotificationRecord) -> bool:
    """Whether nothing more will become of it."""
    return isinstance(record.delivery, (Unsent, Delivered, GivenUp))


def _decoded(path: Path) -> NotificationRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NotificationRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
