"""What a console has received of logs and progress, so that a new link goes on exactly where the old one broke off."""

import msgspec

from remote.protocol.frames import Event, LogData, LogTruncated, ProgressMade
from remote.protocol.requests import Watch


class Gap(Exception):
    """Bytes or records are missing before a frame: the stream must be asked for again."""


class Cursors:
    """The wanted streams with the place that each has reached."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._logs = dict(watch.logs)
        self._progress = dict(watch.progress)

    def watch(self) -> Watch:
        """The request that continues every stream where it stands."""
        return msgspec.structs.replace(self._watch, logs=dict(self._logs), progress=dict(self._progress))

    def accept(self, event: Event) -> Event | None:
        """The part of `event` that is new, or None; raises Gap when something before it is missing."""
        match event:
            case LogData(job_id=job_id, offset=offset, data=data):
                return self._accept_log(job_id, offset, data)
            case LogTruncated(job_id=job_id, start=start) if job_id in self._logs:
                self._logs[job_id] = start
                return event
            case ProgressMade(job_id=job_id, record=record):
                if job_id not in self._progress or record.seq <= self._progress[job_id]:
                    return None
                if record.seq != self._progress[job_id] + 1:
                    raise Gap
                self._progress[job_id] = record.seq
                return event
            case LogTruncated():
                return None
            case _:
                return event

    def _accept_log(self, job_id: str, offset: int, data: bytes) -> LogData | None:
        if job_id not in self._logs:
            return None
        cursor = self._logs[job_id]
        if offset > cursor:
            raise Gap
        fresh = data[cursor - offset :]
        if not fresh:
            return None
        self._logs[job_id] = cursor + len(fresh)
        return LogData(job_id=job_id, offset=cursor, data=fresh)
