"""A job as consoles see it, put together from its directory."""

import time
from pathlib import Path

from remote.jobs import locks, log_bound, logs, process, records
from remote.jobs.launch import agent_of
from remote.jobs.records import LaunchRecord, Records, UnreadableRecord
from remote.jobs.state import Observation, derive_state, revision_of
from remote.protocol.codec import ProtocolError, decode_spec
from remote.protocol.jobs import Finished, Job, JobState, Quarantined
from remote.protocol.specs import Spec
from remote.redaction import NOTHING, Redactor

_SETTLE_ATTEMPTS = 3


def read_job(directory: Path, redactor: Redactor = NOTHING) -> Job | None:
    """The job in `directory`; None when nothing was ever reserved there. Raises OSError where the disk does not answer."""
    content = records.read_bytes(f"{directory}/spec.json")
    if content is None:
        return None
    try:
        spec = decode_spec(content)
        found, lock_held = _settle(directory)
        created_at = _created_at(directory, found.launch)
        state = _state(found, lock_held=lock_held, created_at=created_at)
        return _assemble(directory, spec, found, state, created_at, redactor)
    except (ProtocolError, UnreadableRecord) as error:
        return quarantine(directory, str(error), redactor)


def is_settled(job: Job) -> bool:
    """Whether a job's directory will not change any more, so that reading it once is enough."""
    return isinstance(job.state, Finished)


def _settle(directory: Path) -> tuple[Records, bool]:
    """Records and lock of one moment: read again when the lock changed hands while the records were read."""
    launch = records.read_launch(directory)
    path = None if launch is None else Path(launch.lock)
    found = records.read_records(directory)
    if path is None or found.exit is not None:
        return found, False
    held = _has_supervisor(path, found)
    for _ in range(_SETTLE_ATTEMPTS):
        found = records.read_records(directory)
        before, held = held, _has_supervisor(path, found)
        if before == held:
            break
    return found, held


def _has_supervisor(lock: Path, found: Records) -> bool:
    """The lock says it; where someone cleaned the lock's directory, the supervisor's identity does."""
    if locks.is_held(lock):
        return True
    supervisor = found.supervisor()
    return (
        supervisor is not None
        and found.start is not None
        and found.start.incarnation == process.incarnation()
        and not lock.exists()
        and process.is_alive(*supervisor)
    )


def _state(found: Records, *, lock_held: bool, created_at: float) -> JobState:
    start = found.start
    return derive_state(
        Observation(
            records=found,
            lock_held=lock_held,
            alive=start is not None and process.is_alive(start.pid, start.start_time),
            incarnation=process.incarnation(),
            created_at=created_at,
            now=time.time(),
        )
    )


def _assemble(
    directory: Path, spec: Spec, found: Records, state: JobState, created_at: float, redactor: Redactor
) -> Job:
    launch = found.launch
    log_size, last_line = logs.read_last_line(f"{directory}/out.log", redactor, may_grow=found.exit is None)
    progress = logs.read_last_progress(f"{directory}/progress.jsonl")
    return Job(
        job_id=directory.name,
        agent=agent_of(spec) if launch is None else launch.agent,
        state=state,
        revision=revision_of(found),
        created_at=created_at,
        created_by="unknown" if launch is None else launch.created_by,
        command=[] if launch is None else launch.argv,
        spec=spec,
        run_id=None if launch is None else launch.run_id,
        log_start=log_bound.read_start(directory),
        gpus=[] if launch is None else launch.gpus,
        log_size=log_size,
        last_line=last_line,
        progress_seq=0 if progress is None else progress.seq,
        last_progress=progress,
        result=records.read_result(directory),
    )


def quarantine(directory: Path, reason: str, redactor: Redactor = NOTHING) -> Job:
    """A job of which only its name and what else can be read is shown."""
    try:
        launch = records.read_launch(directory)
    except (UnreadableRecord, OSError):
        launch = None
    try:
        log_size, last_line = logs.read_last_line(f"{directory}/out.log", redactor)
    except OSError:
        log_size, last_line = 0, ""
    return Job(
        job_id=directory.name,
        agent="unknown" if launch is None else launch.agent,
        state=Quarantined(reason=reason),
        revision=1,
        created_at=_created_at(directory, launch),
        created_by="unknown" if launch is None else launch.created_by,
        command=[] if launch is None else launch.argv,
        run_id=None if launch is None else launch.run_id,
        log_size=log_size,
        last_line=last_line,
    )


def _created_at(directory: Path, launch: LaunchRecord | None) -> float:
    if launch is not None:
        return launch.created_at
    return records.modified_at(f"{directory}/spec.json") or 0.0
