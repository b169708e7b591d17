"""What lies on a host's disks, what of it can go, and the trash between. Paths are absolute on the host."""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.ids import JobId, OpId
from remote.protocol.telemetry import MountSample

StorageKind = Literal[
    "run", "store", "mapping", "checkpoints", "drafter", "evaluation", "verdict", "spool", "job", "release", "other"
]
"""What a directory or a file is; `other` is no part of a run or a job."""


class StorageEntry(Message, frozen=True, kw_only=True):
    """A directory with all that is below it, or a plain file; `kept_because` says why it cannot be reclaimed, None when it can."""

    path: str
    kind: StorageKind
    bytes: int
    files: int
    modified_at: float
    used_by: list[JobId] = []
    kept_because: str | None = None


class TrashEntry(Message, frozen=True, kw_only=True):
    """Something that was put into the trash of its file system; `path` is where it lies now, `origin` where it was."""

    name: str
    path: str
    origin: str
    bytes: int
    files: int
    trashed_at: float
    trashed_by: str


class StorageReport(Message, frozen=True, kw_only=True):
    """Everything below ROOT and the directories of runs, the largest first, and the trash."""

    root: str
    mounts: list[MountSample]
    entries: list[StorageEntry]
    trash: list[TrashEntry]


class KeptItem(Message, frozen=True, kw_only=True):
    """What stays when the directory around it is reclaimed, because it is small and precious; name it to reclaim it too."""

    path: str
    reason: str


class ReclaimPlan(Message, frozen=True, kw_only=True):
    """What would go into the trash; with `problems` nothing would. `token` stands for exactly this until `expires_at`."""

    paths: list[str]
    bytes: int
    files: int
    kept: list[KeptItem]
    problems: list[str]
    token: str
    expires_at: float


class TrashList(Message, frozen=True, kw_only=True):
    """Entries of the trash."""

    entries: list[TrashEntry]


class ReadStorage(Message, frozen=True, kw_only=True):
    """What lies where, and how much -> `StorageReport`."""


class PlanReclaim(Message, frozen=True, kw_only=True):
    """What reclaiming these directories would do -> `ReclaimPlan`; relative paths mean below ROOT."""

    paths: list[str]


class MoveToTrash(Message, frozen=True, kw_only=True):
    """Carry out the plan that `token` stands for -> `TrashList`; refused when the directories changed since."""

    paths: list[str]
    token: str
    op_id: OpId


class RestoreFromTrash(Message, frozen=True, kw_only=True):
    """Put an entry of the trash back where it was -> `TrashList` of what is left; never over anything."""

    name: str
    op_id: OpId
