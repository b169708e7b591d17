"""The inbox of a root: a file for each change that waits for a person, or was decided; whoever asked may be gone by then."""

import contextlib
import time
from pathlib import Path

import msgspec

from remote.artifacts import reserve
from remote.errors import NotFound, Precondition
from remote.jobs.records import read_bytes
from remote.protocol.approvals import MOST_LISTED, MOST_WAITING, Approval
from remote.protocol.ids import is_job_id


class Inbox:
    """The requests below one root. Changing one is for whoever holds its lock in the store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / "approvals"
        self._known: tuple[list[tuple[str, int, int]], list[Approval]] = ([], [])

    def read(self, approval_id: str) -> Approval:
        """The request as it is now; raises NotFound."""
        path = self._directory / f"{approval_id}.json"
        found = _decoded(path) if is_job_id(approval_id) else None
        if found is None:
            raise NotFound(f"there is no request {approval_id[:80]} in the inbox", next_command="roost approvals list")
        return _as_of(found, time.time())

    def keep(self, approval: Approval) -> None:
        """Make a request durable as it is now; of those that were decided the oldest go."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        reserve.write_atomic(
            self._root, self._directory / f"{approval.approval_id}.json", msgspec.json.encode(approval)
        )
        for old in [each for each in self.list() if each.state != "waiting"][MOST_LISTED:]:
            with contextlib.suppress(OSError):
                (self._directory / f"{old.approval_id}.json").unlink()

    def require_room(self) -> None:
        """Raises Precondition where so many wait that nobody reads them."""
        if self.waiting() >= MOST_WAITING:
            raise Precondition(
                f"{MOST_WAITING} requests wait for a person already: no more is taken in",
                hint="Ask somebody to look at the inbox.",
            )

    def list(self) -> list[Approval]:
        """What waits, then what was decided, each newest first; what cannot be read is left out."""
        there = _files(self._directory)
        if there != self._known[0]:
            found = [_decoded(self._directory / name) for name, _, _ in there]
            self._known = there, [each for each in found if each is not None]
        now = time.time()
        shown = [_as_of(each, now) for each in self._known[1]]
        return sorted(shown, key=lambda each: (each.state != "waiting", -(each.decided_at or each.asked_at)))

    def waiting(self) -> int:
        """How many wait for a person."""
        return sum(each.state == "waiting" for each in self.list())

    def changed_at(self) -> float:
        """When the inbox changed last, by this host's clock; 0 where there is none."""
        try:
            return self._directory.stat().st_mtime
        except FileNotFoundError:
            return 0.0


def _files(directory: Path) -> list[tuple[str, int, int]]:
    """Name, inode and time of each request: two changes within a tick of the file system's clock leave the directory's time as it is."""
    found: list[tuple[str, int, int]] = []
    for path in directory.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found.append((path.name, status.st_ino, status.st_mtime_ns))
    return sorted(found)


def _decoded(path: Path) -> Approval | None:
    try:
        return msgspec.json.decode(read_bytes(str(path)) or b"", type=Approval)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _as_of(approval: Approval, now: float) -> Approval:
    if approval.state == "waiting" and now >= approval.expires_at:
        return msgspec.structs.replace(approval, state="expired")
    return approval
