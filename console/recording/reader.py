"""Read a recording, also one whose recorder was killed."""

import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from console.errors import UsageError
from console.recording.format import FORMAT_VERSION, Recorded, RecordingEnded, RecordingStarted
from console.state.sanitize import one_line
from console.state.sanitize_json import sanitize_line
from console.state.units import format_duration
from remote.protocol.frames import JobChanged, LogData, Telemetry
from remote.protocol.jobs import Job
from remote.protocol.requests import JobList

_GZIP = b"\x1f\x8b"
_LONGEST_S = 10 * 366 * 86_400.0
_decoder = msgspec.json.Decoder(Recorded)


class Recording(NamedTuple):
    """The records by their time; `torn` says that the end is missing, as a killed recorder leaves it."""

    path: Path
    records: list[Recorded]
    torn: bool

    @property
    def duration_s(self) -> float:
        """Until the last record."""
        return self.records[-1].at if self.records else 0.0

    @property
    def host(self) -> str:
        """The host's name, as the console called it."""
        started = next((each.what for each in self.records if isinstance(each.what, RecordingStarted)), None)
        return one_line(started.host) if started is not None else self.path.name.partition(".")[0]

    @property
    def ended(self) -> str | None:
        """Why it ended; None for one that was not ended in order."""
        return next((each.what.reason for each in self.records if isinstance(each.what, RecordingEnded)), None)


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a recording; times are seconds since the epoch on the host's clock, None where it does not say."""

    file: str
    host: str
    began_at: float | None
    duration_s: float
    ended: str | None
    torn: bool
    records: int
    samples: int
    log_bytes: int
    jobs: list[Job]


def read_recording(path: Path) -> list[Recorded]:
    """The records of a file; raises UsageError for one that is none."""
    return open_recording(path).records


def open_recording(path: Path) -> Recording:
    """Read a file, its texts made harmless; raises UsageError that says what is wrong and on which line.

    A torn last line is passed over.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the recording {path}: {error.strerror}") from error
    torn = False
    if data.startswith(_GZIP):
        data, torn = _decompressed(data, path)
    lines = data.split(b"\n")
    rest = lines.pop()
    torn |= bool(rest)
    records: list[Recorded] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = _decoder.decode(sanitize_line(line))
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(
                f"{path}, line {number} is no record of a session: {error}",
                hint="`roost record FILE` makes recordings",
            ) from error
        if abs(record.at) > _LONGEST_S:
            raise UsageError(
                f"{path}, line {number} is of no time of a recording: {record.at:g} s after its beginning",
                hint="`roost record FILE` makes recordings",
            )
        if number == 1:
            _require_known_format(record, path)
        records.append(record)
    if not records:
        absence = "it has not one whole line" if rest else "nothing is in it"
        raise UsageError(f"{path} is no recording: {absence}", hint="`roost record FILE` makes recordings")
    recording = Recording(path, sorted(records, key=lambda record: record.at), torn)
    is_open = isinstance(records[0].what, RecordingStarted) and recording.ended is None
    return recording._replace(torn=torn or is_open)


def _require_known_format(first: Recorded, path: Path) -> None:
    if isinstance(first.what, RecordingStarted) and first.what.format > FORMAT_VERSION:
        raise UsageError(f"{path} was recorded by a newer Roost (format {first.what.format})", hint="update Roost")


def _decompressed(data: bytes, path: Path) -> tuple[bytes, bool]:
    """What there is of a compressed file, and whether its end is missing."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(data)
    except zlib.error as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    return plain, not inflater.eof


def contents(recording: Recording) -> Contents:
    """What is in it; jobs as they were last seen, newest first."""
    jobs: dict[str, Job] = {}
    samples = log_bytes = 0
    began_at: float | None = None
    for record in recording.records:
        match record.what:
            case RecordingStarted(began_at=at):
                began_at = at
            case JobList(jobs=listed):
                jobs |= {job.job_id: job for job in listed}
            case JobChanged(job=job):
                jobs[job.job_id] = job
            case Telemetry(sample=sample):
                samples += 1
                began_at = began_at if began_at is not None else sample.sampled_at - record.at
            case LogData(data=data):
                log_bytes += len(data)
            case _:
                pass
    return Contents(
        file=str(recording.path),
        host=recording.host,
        began_at=began_at,
        duration_s=recording.duration_s,
        ended=recording.ended,
        torn=recording.torn,
        records=len(recording.records),
        samples=samples,
        log_bytes=log_bytes,
        jobs=sorted(jobs.values(), key=lambda job: job.created_at, reverse=True),
    )


def torn_words(recording: Recording) -> str:
    """That a recording has no end, and where it leaves off."""
    length = format_duration(recording.duration_s)
    return f"the recorder was cut off or is still at work: {recording.path.name} leaves off after {length}"
