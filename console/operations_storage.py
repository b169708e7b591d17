"""What lies on a host's disks, and freeing them: a plan, the trash, and out of it for good."""

from console.operations import LOOK_TIMEOUT_S, Session, ask, start_job
from remote.protocol.ids import OpId, new_op_id
from remote.protocol.jobs import Job
from remote.protocol.specs import PurgeSpec
from remote.protocol.storage import (
    MoveToTrash,
    PlanReclaim,
    ReadStorage,
    ReclaimPlan,
    RestoreFromTrash,
    StorageReport,
    TrashEntry,
    TrashList,
)


async def read_storage(session: Session) -> StorageReport:
    """What lies on the host's disks, the largest first, and its trash."""
    return await ask(session, ReadStorage(), StorageReport, timeout_s=LOOK_TIMEOUT_S)


async def plan_reclaim(session: Session, paths: list[str]) -> ReclaimPlan:
    """What would go into the trash, what would stay, and what forbids it; nothing is changed."""
    return await ask(session, PlanReclaim(paths=paths), ReclaimPlan, timeout_s=LOOK_TIMEOUT_S)


async def reclaim(session: Session, paths: list[str], token: str, *, op_id: OpId | None = None) -> list[TrashEntry]:
    """Move what a plan named into the trash, if nothing changed since; the trash as it is then."""
    request = MoveToTrash(paths=paths, token=token, op_id=op_id or new_op_id())
    return (await ask(session, request, TrashList, timeout_s=LOOK_TIMEOUT_S)).entries


async def restore_from_trash(session: Session, name: str, *, op_id: OpId | None = None) -> list[TrashEntry]:
    """Put an entry of the trash back where it was; the trash as it is then."""
    request = RestoreFromTrash(name=name, op_id=op_id or new_op_id())
    return (await ask(session, request, TrashList, timeout_s=LOOK_TIMEOUT_S)).entries


async def start_purge(session: Session, entries: list[TrashEntry], *, op_id: OpId | None = None) -> Job:
    """Start the job that deletes entries of the trash for good."""
    spec = PurgeSpec(entries=[entry.path for entry in entries])
    return await start_job(session, "purge", spec, op_id=op_id)
