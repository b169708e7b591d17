"""What befell the hardware while a host worked, pure: each event once, in whatever order and however often samples tell it."""

from bisect import bisect_left
from typing import Literal, NamedTuple

from console.state.device_health import event_text
from console.state.diagnoses import diagnosis_summary
from console.state.sanitize import one_line
from remote.protocol.jobs import Job, Paused
from remote.protocol.telemetry import GpuSample, TelemetrySample

MarkKind = Literal["xid", "lost", "throttled", "paused"]
MARK_KINDS: tuple[MarkKind, ...] = ("xid", "lost", "throttled", "paused")
"""The gravest first."""

_JOINED_S = 30.0
"""Two sightings of the same trouble that are closer than this are one event."""
_JOINED_PERIODS = 2.5
_MOST_OF_A_SUBJECT = 100


class Mark(NamedTuple):
    """An event, from its beginning on the host's clock until it was seen last; an XID is over at once."""

    at: float
    until: float
    kind: MarkKind
    words: str


class Marks:
    """The events of a host: XIDs, lost devices, devices that are throttled, and jobs that wait for room on a disk."""

    def __init__(self) -> None:
        self._found: dict[tuple[MarkKind, str], list[Mark]] = {}

    def add(self, sample: TelemetrySample) -> None:
        """Take in what a sample, of now or of then, tells of its moment."""
        at, joined = sample.sampled_at, max(_JOINED_S, _JOINED_PERIODS * sample.period_s)
        for event in sample.gpu_events:
            if event.xid is not None:
                subject = f"GPU {event.gpu_index}" if event.gpu_index is not None else "a GPU"
                self._see(
                    f"{subject} {event.xid}", Mark(event.at, event.at, "xid", f"{subject} {event_text(event)}"), 0.0
                )
        for gpu in sample.gpus:
            if gpu.error is not None:
                self._see(f"GPU {gpu.gpu_index}", Mark(at, at, "lost", _loss(gpu)), joined)
        for each in sample.diagnoses:
            if each.code == "throttled":
                self._see(each.subject, Mark(each.since, at, "throttled", diagnosis_summary(each)), joined)
        for job in sample.jobs:
            if job.activity == "paused" and job.agent != "run":
                self._see(job.job_id, Mark(at, at, "paused", f"{one_line(job.agent)} paused"), joined)

    def add_pause(self, job: Job) -> None:
        """Take in why a job waits, which samples do not tell."""
        if isinstance(job.state, Paused) and job.agent != "run":
            since, words = job.state.since, f"{one_line(job.agent)} paused: {one_line(job.state.reason)}"
            self._see(job.job_id, Mark(since, since, "paused", words), _JOINED_S)

    @property
    def all(self) -> list[Mark]:
        """The events in their order."""
        return sorted(mark for marks in self._found.values() for mark in marks)

    def _see(self, subject: str, seen: Mark, joined: float) -> None:
        """Put a sighting in its place; what it touches of the same subject becomes one event with it."""
        marks = self._found.setdefault((seen.kind, subject), [])
        place = bisect_left(marks, seen.at, key=lambda mark: mark.at)
        start = stop = place
        while start > 0 and marks[start - 1].until + joined >= seen.at:
            start -= 1
        while stop < len(marks) and marks[stop].at <= seen.until + joined:
            stop += 1
        parts = [*marks[start:stop], seen]
        words = max((part.words for part in parts), key=len)
        whole = Mark(min(part.at for part in parts), max(part.until for part in parts), seen.kind, words)
        marks[start:stop] = [whole]
        del marks[:-_MOST_OF_A_SUBJECT]


def _loss(gpu: GpuSample) -> str:
    return f"GPU {gpu.gpu_index} lost: {one_line(gpu.error or '')}"
