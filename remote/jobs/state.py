"""From what is on disk and alive to the state of a job: the recovery table, pure."""

import math

import msgspec

from remote.jobs.records import ExitRecord, Records, StartRecord
from remote.protocol.jobs import (
    Finished,
    Foreign,
    JobState,
    Lost,
    Orphaned,
    Paused,
    Queued,
    Running,
    Stalled,
    Starting,
    Stopping,
    Unkillable,
)

STALE_HEARTBEAT_S = 30.0
_AGE_STEP_S = 10.0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen at `now`: the records, whether the job's lock is held, whether its very process is alive, and the host's incarnation."""

    records: Records
    lock_held: bool
    alive: bool
    incarnation: str
    created_at: float
    now: float


def derive_state(seen: Observation) -> JobState:
    """The state that the observation proves."""
    records = seen.records
    if records.exit is not None:
        return _finished(records.exit, records.start)
    if records.start is None:
        return Starting(since=seen.created_at) if seen.lock_held else Queued(since=seen.created_at)
    if seen.lock_held:
        return _supervised(seen, records.start)
    return _unsupervised(seen, records.start)


def _finished(ended: ExitRecord, start: StartRecord | None) -> Finished:
    return Finished(
        started_at=ended.ended_at if start is None else start.started_at,
        ended_at=ended.ended_at,
        outcome=ended.outcome,
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason,
    )


def _supervised(seen: Observation, start: StartRecord) -> JobState:
    state, stop = seen.records.state, seen.records.stop
    age = _heartbeat_age(seen)
    if state is not None and state.phase == "unkillable":
        return Unkillable(since=state.since, pids=state.pids)
    if age > STALE_HEARTBEAT_S:
        beat = seen.records.heartbeat or start.started_at
        return Stalled(since=beat, pid=start.pid, heartbeat_age_s=math.floor(age / _AGE_STEP_S) * _AGE_STEP_S)
    if stop is not None:
        return Stopping(since=stop.requested_at, pid=start.pid, requested_by=stop.requested_by, reason=stop.reason)
    if (pause := seen.records.pause) is not None:
        return Paused(since=pause.since, pid=start.pid, reason=pause.reason)
    return Running(since=start.started_at, pid=start.pid)


def _unsupervised(seen: Observation, start: StartRecord) -> JobState:
    beat = seen.records.heartbeat or start.started_at
    if start.incarnation != seen.incarnation:
        if _heartbeat_age(seen) <= STALE_HEARTBEAT_S:
            return Foreign(since=start.started_at, incarnation=start.incarnation)
        return Lost(since=beat, reason="the host was restarted while the job ran; its exit is unknown")
    state = seen.records.state
    if seen.alive and state is not None and state.phase == "unkillable":
        return Unkillable(since=state.since, pids=state.pids)
    if seen.alive:
        return Orphaned(since=beat, pid=start.pid)
    return Lost(since=beat, reason="the job and its supervisor are gone and left no exit record; its log may say more")


def _heartbeat_age(seen: Observation) -> float:
    if seen.records.heartbeat is None:
        return 0.0 if seen.records.start is None else seen.now - seen.records.start.started_at
    return seen.now - seen.records.heartbeat


def revision_of(records: Records) -> int:
    """Grows with every record that appears or changes: 1 is the bare reservation."""
    written = sum(record is not None for record in (records.start, records.stop, records.exit))
    return 1 + written + (0 if records.state is None else records.state.rev)
