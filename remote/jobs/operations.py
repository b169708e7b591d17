"""Which changes have taken effect already, by their operation ids: asked for again, they change nothing."""

import time
from pathlib import Path
from typing import Literal

from remote.artifacts import reserve
from remote.errors import Conflict, UsageError
from remote.jobs import records
from remote.jobs.records import OperationRecord
from remote.protocol.ids import is_job_id

Kind = Literal["start", "stop", "reclaim", "restore"]


class Operations:
    """The operations of one root, a file each."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory

    def took_effect(self, kind: Kind, op_id: str, subject: str) -> bool:
        """Whether the change of `subject` (a job, or what lies on a disk) was made before; raises UsageError for no id, Conflict for the id of another change."""
        if not is_job_id(op_id):
            raise UsageError(f"{op_id!r} is no operation id: lower-case letters, digits and dashes")
        done = records.read_operation(self._directory, op_id)
        if done is not None and (done.kind, done.job_id) != (kind, subject):
            raise Conflict(
                f"operation {op_id} was already used by {done.actor} to {done.kind} {done.job_id}",
                hint="Every change needs an operation id of its own.",
            )
        return done is not None

    def remember(self, kind: Kind, op_id: str, subject: str, actor: str) -> None:
        """Put on record that the change was made."""
        done = OperationRecord(kind=kind, job_id=subject, actor=actor, at=time.time())
        reserve.write_once(self._directory.parent, self._directory / f"{op_id}.json", records.encode(done))
