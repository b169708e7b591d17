"""The store: hidden states of a target on its own conversations, in shards that any safetensors reader opens.

A shard has `hidden_states` [tokens, L, H], `final_hidden_states` [tokens, H], `input_ids` int64 [tokens], `sample_offsets`
int64 [samples + 1] and `loss_mask` bool [tokens]. Layer ids are Hugging Face `hidden_states` indices; the final state is
post-norm or pre-norm as the manifest says.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from remote.artifacts.atomic import write_atomic
from remote.artifacts.manifest import FileEntry, Manifest, artifact_ref, read_manifest, verify, write_manifest
from remote.artifacts.safetensors_file import TAG_OF_DTYPE, Tensor, numpy_dtype, open_safetensors, write_safetensors
from remote.errors import Precondition, UsageError
from remote.protocol.jobs import ArtifactRef
from remote.protocol.run import Dtype

FORMAT = "roost-hidden-states"
VERSION = 1
PRODUCER = "roost extraction 1"

_JOURNAL = "journal.jsonl"


class StoreProperties(msgspec.Struct, frozen=True, kw_only=True):
    """What the states mean, and of which model."""

    model: str
    layer_ids: list[int]
    hidden_size: int
    dtype: Dtype
    final_norm: Literal["post_norm", "pre_norm"]
    model_revision: str | None = None
    target_config_sha256: str
    tokenizer_sha256: str
    chat_template_sha256: str
    engine: str
    engine_version: str
    layer_id_meaning: str = "hugging_face_hidden_states_index"
    samples: int = 0
    tokens: int = 0

    @property
    def layer_count(self) -> int:
        """How many layers were captured, the final state not counted."""
        return len(self.layer_ids)


class Sample(NamedTuple):
    """One conversation: ids int64 [T], mask bool [T], states [T, L, H] and final states [T, H] (bfloat16 as uint16)."""

    sample_id: str
    input_ids: "np.ndarray[Any, Any]"
    loss_mask: "np.ndarray[Any, Any]"
    hidden_states: "np.ndarray[Any, Any]"
    final_hidden_states: "np.ndarray[Any, Any]"

    @property
    def nbytes(self) -> int:
        """The bytes of its states."""
        return self.hidden_states.nbytes + self.final_hidden_states.nbytes


class _ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A journal line: a shard that is complete and durable."""

    file: FileEntry
    sample_ids: list[str]
    tokens: int


class WrittenShard(NamedTuple):
    """A shard that has just become durable."""

    name: str
    samples: int
    tokens: int
    bytes: int


class StoreWriter:
    """Collects samples into shards of about `shard_bytes`; a writer on the same directory goes on after the last whole shard."""

    def __init__(self, directory: Path, properties: StoreProperties, shard_bytes: int) -> None:
        self.directory = directory
        self.properties = properties
        self.shard_bytes = shard_bytes
        directory.mkdir(parents=True, exist_ok=True)
        self._shards = _recover(directory)
        self._pending: list[Sample] = []
        self._pending_bytes = 0

    @property
    def done_sample_ids(self) -> set[str]:
        """Samples that are in complete shards."""
        return {sample_id for shard in self._shards for sample_id in shard.sample_ids}

    @property
    def durable_bytes(self) -> int:
        """Bytes in complete shards."""
        return sum(shard.file.bytes for shard in self._shards)

    @property
    def pending_bytes(self) -> int:
        """Bytes of the states that are in no shard yet."""
        return self._pending_bytes

    def append(self, sample: Sample) -> WrittenShard | None:
        """Add a sample; returns the shard that it completed. Raises UsageError for shapes that do not fit the store."""
        return self.flush() if self.add(sample) else None

    def add(self, sample: Sample) -> bool:
        """Add a sample without writing; whether a shard is due. Raises UsageError for shapes that do not fit the store."""
        self._check(sample)
        self._pending.append(sample)
        self._pending_bytes += sample.nbytes
        return self._pending_bytes >= self.shard_bytes

    def flush(self) -> WrittenShard | None:
        """Write what is pending as a shard, so that a stop loses nothing; after an OSError it is still pending."""
        if not self._pending:
            return None
        name = f"shard-{len(self._shards):05d}.safetensors"
        tokens = sum(len(sample.input_ids) for sample in self._pending)
        size, sha256 = write_safetensors(self.directory / name, self._tensors(tokens), {"format": FORMAT})
        record = _ShardRecord(
            file=FileEntry(name=name, bytes=size, sha256=sha256),
            sample_ids=[sample.sample_id for sample in self._pending],
            tokens=tokens,
        )
        _append_durably(self.directory / _JOURNAL, msgspec.json.encode(record) + b"\n")
        self._shards.append(record)
        written = WrittenShard(name, len(self._pending), tokens, size)
        self._pending, self._pending_bytes = [], 0
        return written

    def finish(self, *, fingerprint: str, inputs: dict[str, str]) -> ArtifactRef:
        """Write the last shard and then the manifest, after which the store is done."""
        self.flush()
        properties = msgspec.structs.replace(
            self.properties,
            samples=sum(len(shard.sample_ids) for shard in self._shards),
            tokens=sum(shard.tokens for shard in self._shards),
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
        write_manifest(self.directory, manifest, [_JOURNAL])
        return artifact_ref("store", self.directory)

    def _check(self, sample: Sample) -> None:
        count, properties = len(sample.input_ids), self.properties
        expected = {
            "hidden_states": (count, properties.layer_count, properties.hidden_size),
            "final_hidden_states": (count, properties.hidden_size),
            "loss_mask": (count,),
        }
        for name, shape in expected.items():
            if getattr(sample, name).shape != shape:
                raise UsageError(
                    f"sample {sample.sample_id}: {name} is {getattr(sample, name).shape}, expected {shape}"
                )
        for name in ("hidden_states", "final_hidden_states"):
            if getattr(sample, name).dtype != numpy_dtype(properties.dtype):
                raise UsageError(
                    f"sample {sample.sample_id}: {name} is {getattr(sample, name).dtype}, not {properties.dtype}"
                )

    def _tensors(self, tokens: int) -> dict[str, Tensor]:
        pending, properties = self._pending, self.properties
        tag = TAG_OF_DTYPE[properties.dtype]
        lengths = [len(sample.input_ids) for sample in pending]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return {
            "sample_offsets": Tensor("I64", (len(offsets),), [offsets]),
            "input_ids": Tensor("I64", (tokens,), [sample.input_ids for sample in pending]),
            "hidden_states": Tensor(
                tag,
                (tokens, properties.layer_count, properties.hidden_size),
                [sample.hidden_states for sample in pending],
            ),
            "final_hidden_states": Tensor(
                tag, (tokens, properties.hidden_size), [sample.final_hidden_states for sample in pending]
            ),
            "loss_mask": Tensor("BOOL", (tokens,), [sample.loss_mask for sample in pending]),
        }


def _append_durably(path: Path, line: bytes) -> None:
    """The whole line or, on a full disk, nothing of it."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            done = 0
            while done < len(line):
                done += file.write(line[done:])
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def _recover(directory: Path) -> list[_ShardRecord]:
    """The complete shards of an unfinished store; everything that its journal does not list is discarded."""
    journal = directory / _JOURNAL
    shards: list[_ShardRecord] = []
    if journal.exists():
        content = journal.read_bytes()
        for line in content.splitlines():
            try:
                record = msgspec.json.decode(line, type=_ShardRecord)
            except msgspec.DecodeError:
                break
            path = directory / record.file.name
            if not path.is_file() or path.stat().st_size != record.file.bytes:
                break
            shards.append(record)
        kept = b"".join(msgspec.json.encode(record) + b"\n" for record in shards)
        if kept != content:
            write_atomic(journal, kept)
    listed = {record.file.name for record in shards}
    for path in directory.glob("shard-*.safetensors*"):
        if path.name not in listed:
            path.unlink()
    return shards


class StoreReader:
    """A finished store, memory-mapped; `sample(i)` by position, in the order of writing.

    Raises Precondition when the manifest is missing or a file has another size than it says.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        manifest = read_manifest(directory)
        if manifest.format != FORMAT or manifest.version != VERSION:
            raise Precondition(
                f"{directory} is {manifest.format} version {manifest.version}, not a store of version {VERSION}"
            )
        verify(directory, hashes=False)
        self.properties = msgspec.convert(manifest.properties, StoreProperties)
        records = [json.loads(line) for line in (directory / _JOURNAL).read_bytes().splitlines()]
        self._places: list[tuple[int, int]] = []
        self.sample_ids: list[str] = []
        self._shards: list[dict[str, np.ndarray[Any, Any]]] = []
        for record in records:
            arrays = open_safetensors(directory / record["file"]["name"]).arrays
            self._places += [(len(self._shards), position) for position in range(len(record["sample_ids"]))]
            self.sample_ids += record["sample_ids"]
            self._shards.append(arrays)

    def __len__(self) -> int:
        return len(self._places)

    def sample(self, index: int) -> Sample:
        """The sample at `index`, its arrays still on disk until they are touched."""
        shard_index, position = self._places[index]
        shard = self._shards[shard_index]
        start, end = (int(offset) for offset in shard["sample_offsets"][position : position + 2])
        return Sample(
            self.sample_ids[index],
            shard["input_ids"][start:end],
            shard["loss_mask"][start:end],
            shard["hidden_states"][start:end],
            shard["final_hidden_states"][start:end],
        )

    def __iter__(self) -> Iterator[Sample]:
        return (self.sample(index) for index in range(len(self)))

    def token_counts(self, vocab_size: int) -> "np.ndarray[Any, Any]":
        """How often each token stands at a position that counts for the loss: int64 [vocab_size]."""
        counts = np.zeros(vocab_size, np.int64)
        for shard in self._shards:
            counts += np.bincount(shard["input_ids"][shard["loss_mask"]], minlength=vocab_size)
        return counts
