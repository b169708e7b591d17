"""The newest reading in a place of its own, so that it can be replaced when every disk is full; and who wants readings.

A file has one record: its length and CRC-32 (two little-endian 32-bit integers), then JSON. It is written in place, into
blocks that it has from the beginning; a reader that meets half a record reads again.
"""

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.telemetry import GpuTopology, TelemetrySample

_T = TypeVar("_T", bound=msgspec.Struct)

_RESERVED_BYTES = 256 << 10
"""Eight GPUs and their jobs take 10 KiB; a larger record takes further blocks where there are some."""

_HEAD = struct.Struct("<II")
_ATTEMPTS = 5


class Slot(Generic[_T]):
    """One record that is replaced in place by its only writer; it exists once it was reserved."""

    def __init__(self, path: Path, kind: type[_T]) -> None:
        self.path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()
        self._descriptor: int | None = None

    def reserve(self) -> None:
        """Take the blocks of a large record; raises OSError where there are none. What is there stays as old as it is."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            before = os.fstat(descriptor)
            os.posix_fallocate(descriptor, 0, _RESERVED_BYTES)
            if before.st_size:
                os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def write(self, value: _T) -> None:
        """Replace the record."""
        if self._descriptor is None:
            raise ValueError(f"{self.path} was not reserved")
        data = self._encoder.encode(value)
        os.pwrite(self._descriptor, _HEAD.pack(len(data), zlib.crc32(data)) + data, 0)

    def written_at(self) -> int:
        """When it was replaced last, in nanoseconds since the epoch; 0 when it never was."""
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return 0

    def read(self) -> _T | None:
        """The record; None when there is none, or none that this release can read."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            data = _read_whole(descriptor)
            return None if data is None else self._decoder.decode(data)
        except msgspec.DecodeError:
            return None
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Give up writing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _read_whole(descriptor: int) -> bytes | None:
    for _ in range(_ATTEMPTS):
        head = os.pread(descriptor, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            return None
        length, checksum = _HEAD.unpack(head)
        data = os.pread(descriptor, min(length, MAX_LINE_BYTES), _HEAD.size)
        if length and zlib.crc32(data) == checksum:
            return data
    return None


class LiveReadings:
    """What the recorder of a root leaves for the links, in the first of `directories` (private to this user) that has room."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._latest = [Slot(directory / "latest", TelemetrySample) for directory in directories]
        self._topologies = [Slot(directory / "topology", GpuTopology) for directory in directories]
        self._wanted = directories[0] / "wanted"
        self._seen = 0

    def open(self) -> None:
        """Become the writer; raises OSError when no directory has room."""
        for latest, topology in zip(self._latest, self._topologies, strict=True):
            try:
                latest.reserve()
                topology.reserve()
            except OSError:
                latest.close()
                if latest is self._latest[-1]:
                    raise
            else:
                self._latest, self._topologies = [latest], [topology]
                return

    def publish(self, sample: TelemetrySample) -> None:
        """Replace the newest reading."""
        self._latest[0].write(sample)

    def publish_topology(self, topology: GpuTopology) -> None:
        """Replace what is known of the devices' connections."""
        self._topologies[0].write(topology)

    def newer(self) -> TelemetrySample | None:
        """The newest reading when it is another than at the last call, else None."""
        newest = max(self._latest, key=Slot.written_at)
        at = newest.written_at()
        if at == self._seen:
            return None
        sample = newest.read()
        if sample is not None:
            self._seen = at
        return sample

    def topology(self) -> GpuTopology | None:
        """The connections of the devices; None while no recorder has told them."""
        return max(self._topologies, key=Slot.written_at).read()

    def age_s(self) -> float | None:
        """How long ago the newest reading was published; None when there is none."""
        return _age_s(max(slot.written_at() for slot in self._latest))

    def want(self) -> None:
        """Say that readings are wanted from now on."""
        with contextlib.suppress(OSError):
            self._wanted.touch(mode=0o600)

    def wanted_age_s(self) -> float | None:
        """How long ago somebody wanted readings; None when nobody ever did."""
        try:
            return _age_s(self._wanted.stat().st_mtime_ns)
        except OSError:
            return None


def _age_s(at_ns: int) -> float | None:
    return max(0.0, time.time() - at_ns / 1e9) if at_ns else None
