"""Writing a store: the samples of a plan in its order, streamed into shards; the same bytes however often it is interrupted.

The plan says what is in which shard before the first row is captured, so that a shard's size, and its header, are known when it
is begun. A sample that turns out to be unfit is quarantined: it is taken out of its shard and put on record with the reason.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from remote.artifacts.atomic import write_atomic
from remote.artifacts.hidden_states import (
    FORMAT,
    JOURNAL,
    PRODUCER,
    VERSION,
    Sample,
    ShardRecord,
    StoreProperties,
)
from remote.artifacts.manifest import FileEntry, Manifest, artifact_ref, write_manifest
from remote.artifacts.quarantine import QUARANTINE, Quarantined
from remote.artifacts.safetensors_file import Shape, file_bytes, numpy_dtype
from remote.artifacts.safetensors_stream import StreamedSafetensors, part_of
from remote.artifacts.store_journal import BEGUN, append_durably, begin, read_lines, recover
from remote.artifacts.store_plan import METADATA, Planned, len_of_shard, shard_shapes
from remote.errors import Precondition, UsageError
from remote.protocol.jobs import ArtifactRef

_UNFINISHED = "unfinished.json"
_STATES = ("hidden_states", "final_hidden_states")


class WrittenShard(NamedTuple):
    """A shard that has just become durable."""

    name: str
    samples: int
    tokens: int
    bytes: int


class _Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """What an orderly stop left of the shard at `name`: the rows of its first `samples`, and their hash."""

    name: str
    sample_ids: list[str]
    samples: int
    sha256: str


class _OpenShard:
    """The shard that is being written: the plan's `[start, end)`, of which `members` (positions) are to be in it."""

    def __init__(self, stream: StreamedSafetensors, end: int, members: list[int], done: int = 0) -> None:
        self.stream = stream
        self.end = end
        self.members = members
        self.done = done
        self.record: ShardRecord | None = None

    @property
    def is_whole(self) -> bool:
        return self.done == len(self.members)


class StoreWriter:
    """Writes the samples of `plan`, in its order, into shards of at most `shard_bytes` (a longer sample has one for itself).

    A writer on the same directory goes on after the last whole shard, and within a shard after an orderly `suspend`. Every call
    that found no room may be repeated. Raises Precondition when the store was begun with other properties or another plan.
    """

    def __init__(self, directory: Path, properties: StoreProperties, plan: Sequence[Planned], shard_bytes: int) -> None:
        self.directory = directory
        self.properties = properties
        self.plan = plan
        directory.mkdir(parents=True, exist_ok=True)
        self.shard_bytes = begin(directory, properties, shard_bytes)
        self.quarantined = read_lines(directory / QUARANTINE, Quarantined)
        self._shards = recover(directory)
        self._check_plan()
        self._position = self._shards[-1].end if self._shards else 0
        self._open = self._adopt()
        self._clean()
        self._skip()

    def _check_plan(self) -> None:
        position, out = 0, self._left_out()
        for shard in self._shards:
            expected = [item.sample_id for item in self.plan[position : shard.end] if item.sample_id not in out]
            if expected != shard.sample_ids:
                raise Precondition(
                    f"{self.directory / shard.file.name} holds other samples than are planned for it",
                    hint="the conversations or their order have changed: begin a new store",
                )
            position = shard.end

    @property
    def next_sample(self) -> Planned | None:
        """The sample whose states are to be written next; None when all are there."""
        return None if self._position >= len(self.plan) else self.plan[self._position]

    @property
    def position(self) -> int:
        """Where in the plan the next sample stands."""
        return self._position

    @property
    def written(self) -> list[Planned]:
        """The samples that are in the store, or in the shard that is being written."""
        out = self._left_out()
        return [item for item in self.plan[: self._position] if item.sample_id not in out]

    @property
    def durable_bytes(self) -> int:
        """Bytes in complete shards."""
        return sum(shard.file.bytes for shard in self._shards)

    @property
    def pending_bytes(self) -> int:
        """Bytes of the states that lie in a shard that is not whole yet."""
        return 0 if self._open is None else sum(self._open.stream.written()[name] for name in _STATES)

    @property
    def shard_is_open(self) -> bool:
        """Whether the next sample's shard has its place on the disk."""
        return self._open is not None

    @property
    def shard_is_whole(self) -> bool:
        """Whether the shard that is being written lacks nothing but `seal`."""
        return self._open is not None and self._open.is_whole

    @property
    def next_shard_bytes(self) -> int:
        """The size of the shard that the next sample is in, to the byte."""
        return file_bytes(self._shapes(self._members(self._position, self._shard_end(self._position))), METADATA)

    @property
    def is_reserved(self) -> bool:
        """Whether the open shard's blocks are its own already, so that writing its rows needs no more room."""
        return self._open is not None and self._open.stream.is_reserved

    def open_shard(self) -> None:
        """Give the next sample's shard its place on the disk; OSError leaves nothing behind."""
        if self._open is not None or self.next_sample is None:
            return
        end = self._shard_end(self._position)
        members = self._members(self._position, end)
        stream = StreamedSafetensors(self.directory / self._shard_name(), self._shapes(members), METADATA)
        self._write_tokens(stream, members)
        self._open = _OpenShard(stream, end, members)

    def write(self, sample: Sample) -> None:
        """The states of the next sample. Raises UsageError for another one, or for shapes that do not fit the store."""
        self._check(sample)
        self.open_shard()
        shard = self._open
        assert shard is not None, "there is a next sample"
        before = shard.done
        for name in _STATES:
            # A repeated call goes on with what the one before, which found no room, did not write.
            if shard.stream.written()[name] == self._state_bytes(shard.members[:before], name):
                shard.stream.write(name, getattr(sample, name))
        shard.done += 1
        self._position += 1
        self._skip()

    def seal(self) -> WrittenShard:
        """Make the whole shard durable and put it on record."""
        shard = self._open
        assert shard is not None
        assert shard.is_whole, "a shard is sealed when all its samples are written"
        if shard.record is None:
            name = self._shard_name()
            size, sha256 = shard.stream.finish()
            shard.record = ShardRecord(
                file=FileEntry(name=name, bytes=size, sha256=sha256),
                sample_ids=[self.plan[position].sample_id for position in shard.members],
                tokens=self._tokens(shard.members),
                end=shard.end,
            )
        record = shard.record
        append_durably(self.directory / JOURNAL, msgspec.json.encode(record) + b"\n")
        (self.directory / _UNFINISHED).unlink(missing_ok=True)
        self._shards.append(record)
        self._open = None
        return WrittenShard(record.file.name, len(record.sample_ids), record.tokens, record.file.bytes)

    def append(self, sample: Sample) -> WrittenShard | None:
        """Write the next sample; returns the shard that it completed."""
        self.write(sample)
        return self.seal() if self.shard_is_whole else None

    def leave_out(self, entries: Sequence[Quarantined]) -> None:
        """Quarantine samples that are not written; they are on record, durably, before anything else happens."""
        known = self._left_out()
        new = [entry for entry in entries if entry.sample_id not in known]
        if new:
            append_durably(self.directory / QUARANTINE, b"".join(msgspec.json.encode(entry) + b"\n" for entry in new))
        self.quarantined += new
        out, shard = self._left_out(), self._open
        if shard is not None:
            remaining = [place for place in shard.members if self.plan[place].sample_id not in out]
            if remaining != shard.members:
                self._take_out(shard, remaining)
        self._skip()

    def _take_out(self, shard: _OpenShard, remaining: list[int]) -> None:
        shard.members = remaining
        if not remaining:
            shard.stream.discard()
            self._open = None
            return
        shard.stream.take_out(self._shapes(remaining), _STATES)
        self._write_tokens(shard.stream, remaining)

    def suspend(self) -> None:
        """Leave a shard that is not whole so that it can be gone on with."""
        shard = self._open
        if shard is None or shard.record is not None:
            return
        self._open = None
        if shard.done == 0:
            shard.stream.discard()
            return
        mark = _Unfinished(
            name=self._shard_name(),
            sample_ids=[self.plan[position].sample_id for position in shard.members],
            samples=shard.done,
            sha256=shard.stream.hash_of_written(_STATES),
        )
        shard.stream.keep()
        write_atomic(self.directory / _UNFINISHED, msgspec.json.encode(mark))

    def close(self) -> None:
        """Let go of a shard that is not whole; nothing of it counts."""
        if self._open is not None:
            self._open.stream.discard()
            self._open = None

    def finish(self, *, fingerprint: str, inputs: dict[str, str]) -> ArtifactRef:
        """Write the manifest, after which the store is done. Raises UsageError when a planned sample is missing."""
        missing = self.next_sample
        if missing is not None or self._open is not None:
            raise UsageError(f"the store {self.directory} is not complete: {missing and missing.sample_id} is missing")
        if not self._shards:
            raise Precondition(
                f"every sample of {self.directory} is quarantined; {self.quarantined[0].reason}",
                hint="see its quarantine.jsonl",
            )
        properties = msgspec.structs.replace(
            self.properties,
            samples=sum(len(shard.sample_ids) for shard in self._shards),
            tokens=sum(shard.tokens for shard in self._shards),
            quarantined=len(self.quarantined),
        )
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            fingerprint=fingerprint,
            inputs=inputs,
            producer=PRODUCER,
            created_at=time.time(),
            files=[shard.file for shard in self._shards],
            properties=msgspec.to_builtins(properties),
        )
        names = [JOURNAL, *([QUARANTINE] if self.quarantined else [])]
        write_manifest(self.directory, manifest, names)
        (self.directory / BEGUN).unlink(missing_ok=True)
        return artifact_ref("store", self.directory)

    def _left_out(self) -> set[str]:
        return {entry.sample_id for entry in self.quarantined}

    def _skip(self) -> None:
        """Move on over what is quarantined; a shard of which nothing else is left is never made."""
        out = self._left_out()
        while self._position < len(self.plan) and self.plan[self._position].sample_id in out:
            self._position += 1

    def _shard_name(self) -> str:
        return f"shard-{len(self._shards):05d}.safetensors"

    def _shard_end(self, position: int) -> int:
        """Where the shard ends that the plan puts `position` in."""
        start = self._shards[-1].end if self._shards else 0
        lengths = [len(item.input_ids) for item in self.plan[start:]]
        end = start
        while end <= position:
            end += len_of_shard(lengths[end - start :], self.properties, self.shard_bytes)
        return end

    def _members(self, position: int, end: int) -> list[int]:
        out = self._left_out()
        start = self._shards[-1].end if self._shards else 0
        return [place for place in range(max(start, position), end) if self.plan[place].sample_id not in out]

    def _tokens(self, members: Sequence[int]) -> int:
        return sum(len(self.plan[position].input_ids) for position in members)

    def _state_bytes(self, members: Sequence[int], name: str) -> int:
        rows = self.properties.layer_count if name == "hidden_states" else 1
        width = rows * self.properties.hidden_size * numpy_dtype(self.properties.dtype).itemsize
        return self._tokens(members) * width

    def _shapes(self, members: Sequence[int]) -> dict[str, Shape]:
        return shard_shapes(self.properties, samples=len(members), tokens=self._tokens(members))

    def _write_tokens(self, stream: StreamedSafetensors, members: Sequence[int]) -> None:
        lengths = [len(self.plan[position].input_ids) for position in members]
        stream.write("sample_offsets", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        stream.write("input_ids", np.concatenate([self.plan[position].input_ids for position in members]))
        stream.write("loss_mask", np.concatenate([self.plan[position].loss_mask for position in members]))

    def _adopt(self) -> _OpenShard | None:
        """The shard that an orderly stop left, if its rows are still what they were."""
        try:
            mark = msgspec.json.decode((self.directory / _UNFINISHED).read_bytes(), type=_Unfinished)
        except (OSError, msgspec.DecodeError):
            return None
        path = self.directory / self._shard_name()
        if mark.name != path.name or not part_of(path).is_file():
            return None
        end = self._shard_end(self._first_of_shard())
        members = self._members(self._position, end)
        if [self.plan[position].sample_id for position in members] != mark.sample_ids:
            return None
        done = {name: self._state_bytes(members[: mark.samples], name) for name in _STATES}
        stream = StreamedSafetensors(path, self._shapes(members), METADATA, done=done)
        if stream.hash_of_written(_STATES) != mark.sha256:
            stream.discard()
            return None
        self._write_tokens(stream, members)
        self._position = members[mark.samples - 1] + 1
        return _OpenShard(stream, end, members, mark.samples)

    def _first_of_shard(self) -> int:
        out, position = self._left_out(), self._position
        while position < len(self.plan) - 1 and self.plan[position].sample_id in out:
            position += 1
        return position

    def _clean(self) -> None:
        """Discard everything that is neither on record nor gone on with."""
        kept = {shard.file.name for shard in self._shards}
        if self._open is not None:
            kept.add(part_of(self._open.stream.path).name)
        for path in [*self.directory.glob("shard-*.safetensors*"), *self.directory.glob(".*.part")]:
            if path.name not in kept:
                path.unlink()

    def _check(self, sample: Sample) -> None:
        planned, properties = self.next_sample, self.properties
        if planned is None or sample.sample_id != planned.sample_id:
            raise UsageError(
                f"sample {sample.sample_id} is not the one to come, which is {planned and planned.sample_id}"
            )
        if not np.array_equal(sample.input_ids, planned.input_ids):
            raise UsageError(f"sample {sample.sample_id} has other tokens than were planned")
        count = len(planned.input_ids)
        expected = {
            "hidden_states": (count, properties.layer_count, properties.hidden_size),
            "final_hidden_states": (count, properties.hidden_size),
        }
        for name, shape in expected.items():
            array = getattr(sample, name)
            if array.shape != shape:
                raise UsageError(f"sample {sample.sample_id}: {name} is {array.shape}, expected {shape}")
            if array.dtype != numpy_dtype(properties.dtype):
                raise UsageError(f"sample {sample.sample_id}: {name} is {array.dtype}, not {properties.dtype}")


def write_store(
    directory: Path,
    properties: StoreProperties,
    samples: Sequence[Sample],
    shard_bytes: int,
    *,
    fingerprint: str,
    inputs: dict[str, str],
) -> ArtifactRef:
    """A store of samples that are all there already."""
    plan = [Planned(sample.sample_id, sample.input_ids, sample.loss_mask) for sample in samples]
    writer = StoreWriter(directory, properties, plan, shard_bytes)
    while writer.next_sample is not None:
        writer.append(samples[writer.position])
    return writer.finish(fingerprint=fingerprint, inputs=inputs)
