"""The recorded readings of a host: three rings of NDJSON segments, by the second, by ten seconds and by the minute.

A segment in use is plain (`active.ndjson`): a line is whole or, torn by a crash, the last and cut off. A full one is
compressed (`<first>-<last>.ndjson.gz`, seconds since the epoch) and published by rename. What is over a ring's bytes goes,
oldest first.
"""

import contextlib
import gzip
import math
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.protocol.telemetry import TelemetrySample
from remote.telemetry.thinning import Thinner

_ACTIVE = "active.ndjson"
_SUFFIX = ".ndjson.gz"
_MIB = 1 << 20


class RingPlan(NamedTuple):
    """One ring: a sample in `step_s` seconds, segments of `segment_s` seconds, at most `most_bytes` on disk."""

    name: str
    step_s: float
    segment_s: float
    most_bytes: int


PLANS = (
    RingPlan("1s", 1.0, 300.0, 192 * _MIB),
    RingPlan("10s", 10.0, 3600.0, 64 * _MIB),
    RingPlan("60s", 60.0, 21_600.0, 32 * _MIB),
)
"""With eight GPUs about four days by the second, two weeks by ten seconds, a month and more by the minute."""


class Segment(NamedTuple):
    """A file of samples from `first` to `last`; that of the segment in use is open-ended."""

    path: Path
    first: float
    last: float


class RingWriter:
    """One ring's writer; the only one of its directory (the caller holds a lock)."""

    def __init__(self, directory: Path, plan: RingPlan) -> None:
        self._directory = directory
        self._plan = plan
        self._active = directory / _ACTIVE
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left_over in directory.glob("*.part"):
            left_over.unlink()
        self._first, self._last = _mend(self._active)
        self._descriptor = os.open(self._active, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = os.fstat(self._descriptor).st_size

    def append(self, sample: TelemetrySample, line: bytes) -> None:
        """Add the sample whose encoding is `line`; a disk without room loses the sample and nothing else. Raises OSError."""
        if self._first is not None and not 0 <= sample.sampled_at - self._first < self._plan.segment_s:
            self._close_segment()
        done = 0
        try:
            while done < len(line):
                done += os.write(self._descriptor, line[done:])
        except OSError:
            os.ftruncate(self._descriptor, self._end)
            raise
        self._end += done
        self._first = sample.sampled_at if self._first is None else self._first
        self._last = sample.sampled_at

    def close(self) -> None:
        """Leave the segment in use as it is: the next writer goes on with it."""
        os.close(self._descriptor)

    def _close_segment(self) -> None:
        first, last = self._first or 0.0, self._last or 0.0
        final = self._directory / f"{math.floor(first)}-{math.ceil(last)}{_SUFFIX}"
        part = final.with_suffix(".part")
        try:
            data = gzip.compress(self._active.read_bytes(), compresslevel=6)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(data)
            part.rename(final)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        finally:
            # Without room for the compressed segment the plain one goes: it would grow for ever.
            os.ftruncate(self._descriptor, 0)
            self._end, self._first, self._last = 0, None, None
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        segments = closed_segments(self._directory)
        sizes = [segment.path.stat().st_size for segment in segments]
        total = sum(sizes)
        for segment, size in zip(segments, sizes, strict=True):
            if total <= self._plan.most_bytes:
                return
            segment.path.unlink(missing_ok=True)
            total -= size


class Ring:
    """All rings of a host, for its one recorder."""

    def __init__(self, directory: Path, plans: tuple[RingPlan, ...] = PLANS) -> None:
        self._encoder = msgspec.json.Encoder()
        self._rings = [(RingWriter(directory / plan.name, plan), Thinner(plan.step_s)) for plan in plans]

    def append(self, sample: TelemetrySample) -> None:
        """Add a sample to every ring whose step is complete with it; raises OSError after all were tried."""
        trouble: OSError | None = None
        for writer, thinner in self._rings:
            for thinned in thinner.add(sample):
                try:
                    writer.append(thinned, self._encoder.encode(thinned) + b"\n")
                except OSError as error:
                    trouble = error
        if trouble is not None:
            raise trouble

    def close(self) -> None:
        """Write what is gathered, as far as it got."""
        for writer, thinner in self._rings:
            with contextlib.suppress(OSError):
                for thinned in thinner.flush():
                    writer.append(thinned, self._encoder.encode(thinned) + b"\n")
            writer.close()


def read_ring(
    directory: Path, since: float, until: float, step_s: float, plans: tuple[RingPlan, ...] = PLANS
) -> Iterator[TelemetrySample]:
    """Samples with `since` <= `sampled_at` < `until` in their order, thinned to one in `step_s`.

    The coarsest ring that is fine enough answers; what it has forgotten comes from the coarser ones, what it has not yet
    got (or lost with a recorder that was killed) from the finer ones.
    """
    thinner = Thinner(step_s)
    for sample in _read_layers(directory, since, until, step_s, plans):
        yield from thinner.add(sample)
    yield from thinner.flush()


def oldest_sample_at(directory: Path, plans: tuple[RingPlan, ...] = PLANS) -> float | None:
    """When the oldest sample that is still there was taken; None when there is none."""
    firsts = [segments[0].first for plan in plans if (segments := _segments(directory / plan.name))]
    return min(firsts, default=None)


def _read_layers(
    directory: Path, since: float, until: float, step_s: float, plans: tuple[RingPlan, ...]
) -> Iterator[TelemetrySample]:
    fine = [plan for plan in plans if plan.step_s <= max(step_s, plans[0].step_s)]
    layers: list[tuple[RingPlan, float, float]] = []
    end = until
    for plan in (fine[-1], *(coarser for coarser in plans if coarser.step_s > fine[-1].step_s)):
        segments = _segments(directory / plan.name)
        begin = max(since, segments[0].first) if segments else end
        if begin < end:
            layers.append((plan, begin, end))
            end = begin
    last = -math.inf
    for plan, begin, before in reversed(layers):
        for sample in _read_layer(directory / plan.name, begin, before):
            last = sample.sampled_at
            yield sample
    for plan in reversed(fine[:-1]):
        for sample in _read_layer(directory / plan.name, max(since, math.nextafter(last, math.inf)), until):
            last = sample.sampled_at
            yield sample


def _read_layer(directory: Path, since: float, until: float) -> Iterator[TelemetrySample]:
    """In the order of the clock, should it have been set back."""
    last = -math.inf
    decoder = msgspec.json.Decoder(TelemetrySample)
    for segment in _segments(directory):
        if segment.last < since or segment.first >= until:
            continue
        for line in _lines(segment.path):
            try:
                sample = decoder.decode(line)
            except msgspec.DecodeError:  # torn by a crash, or written by a release that knows more
                continue
            if max(since, last) <= sample.sampled_at < until:
                last = sample.sampled_at
                yield sample


def _lines(path: Path) -> list[bytes]:
    """The whole lines of a segment; one that is rotated away meanwhile has been read before or is read in its new place."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    if path.name.endswith(_SUFFIX):
        data = _readable_part(data)
    return data.split(b"\n")[:-1]


def _readable_part(data: bytes) -> bytes:
    """All of a compressed segment, or what there is of one that is cut off; nothing of a damaged one, whose figures may be wrong."""
    try:
        return zlib.decompressobj(wbits=31).decompress(data)
    except zlib.error:
        return b""


def closed_segments(directory: Path) -> list[Segment]:
    """The compressed segments, oldest first."""
    found = []
    for path in directory.glob(f"*{_SUFFIX}"):
        first, _, last = path.name.removesuffix(_SUFFIX).partition("-")
        if first.isdecimal() and last.isdecimal():
            found.append(Segment(path, float(first), float(last)))
    return sorted(found, key=lambda segment: (segment.first, segment.last))


def _segments(directory: Path) -> list[Segment]:
    active = directory / _ACTIVE
    first, _ = _span(_lines(active))
    found = closed_segments(directory) + ([] if first is None else [Segment(active, first, math.inf)])
    return sorted(found, key=lambda segment: segment.first)


class _Dated(msgspec.Struct):
    """The time of a sample, all else skipped."""

    sampled_at: float


def _span(lines: list[bytes]) -> tuple[float | None, float | None]:
    """The times of the first and the last sample; lines that are none, as a power failure leaves them, are passed over."""
    return _first_time(lines), _first_time(reversed(lines))


def _first_time(lines: Iterable[bytes]) -> float | None:
    decoder = msgspec.json.Decoder(_Dated)
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            return decoder.decode(line).sampled_at
    return None


def _mend(active: Path) -> tuple[float | None, float | None]:
    """Cut off the line that a crash tore; the times of the first and the last sample. An unreadable segment is emptied."""
    lines = _lines(active)
    first, last = _span(lines)
    if active.exists():
        os.truncate(active, 0 if first is None else sum(len(line) + 1 for line in lines))
    return first, last
