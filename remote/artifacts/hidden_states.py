"""The store: hidden states of a target on its own conversations, in shards that any safetensors reader opens.

A shard has `hidden_states` [tokens, L, H], `final_hidden_states` [tokens, H], `input_ids` int64 [tokens], `sample_offsets`
int64 [samples + 1] and `loss_mask` bool [tokens]. Layer ids are Hugging Face `hidden_states` indices; the final state is
post-norm or pre-norm as the manifest says.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import msgspec
import numpy as np

from remote.artifacts.manifest import FileEntry, read_manifest, verify
from remote.artifacts.safetensors_file import open_safetensors
from remote.errors import Precondition
from remote.protocol.run import Dtype

FORMAT = "roost-hidden-states"
VERSION = 1
PRODUCER = "roost extraction 2"

JOURNAL = "journal.jsonl"


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
    quarantined: int = 0

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


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A journal line: a shard that is complete and durable; it holds the plan's samples up to `end`, but for the quarantined."""

    file: FileEntry
    sample_ids: list[str]
    tokens: int
    end: int


class StoreReader(Sequence[Sample]):
    """A finished store, memory-mapped: `store[i]` by position, in the order of writing, its arrays views of the files.

    It may be handed to other processes, such as a DataLoader's workers: each maps the files for itself. Raises Precondition when
    the manifest is missing or a file has another size than it says.
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
        records = [json.loads(line) for line in (directory / JOURNAL).read_bytes().splitlines()]
        self._names = [str(record["file"]["name"]) for record in records]
        self._shards: list[dict[str, np.ndarray[Any, Any]] | None] = [None] * len(records)
        self._places: list[tuple[int, int]] = []
        self.sample_ids: list[str] = []
        for number, record in enumerate(records):
            self._places += [(number, position) for position in range(len(record["sample_ids"]))]
            self.sample_ids += record["sample_ids"]

    def __reduce__(self) -> "tuple[type[StoreReader], tuple[Path]]":
        return type(self), (self.directory,)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> "Sample | list[Sample]":
        if isinstance(index, slice):
            return [self.sample(position) for position in range(*index.indices(len(self)))]
        return self.sample(index)

    def sample(self, index: int) -> Sample:
        """The sample at `index`, its arrays still on disk until they are touched."""
        number, position = self._places[index]
        shard = self._shard(number)
        start, end = (int(offset) for offset in shard["sample_offsets"][position : position + 2])
        return Sample(
            self.sample_ids[index],
            shard["input_ids"][start:end],
            shard["loss_mask"][start:end],
            shard["hidden_states"][start:end],
            shard["final_hidden_states"][start:end],
        )

    def shard_of(self, index: int) -> str:
        """The name of the file that the sample at `index` is in."""
        return self._names[self._places[index][0]]

    def _shard(self, number: int) -> "dict[str, np.ndarray[Any, Any]]":
        shard = self._shards[number]
        if shard is None:
            shard = self._shards[number] = open_safetensors(self.directory / self._names[number]).arrays
        return shard

    def shard_tokens(self) -> "Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]]":
        """Each shard's ids int64 [tokens], loss mask bool [tokens], and where its samples begin [samples]."""
        for number in range(len(self._names)):
            shard = self._shard(number)
            yield shard["input_ids"], shard["loss_mask"], shard["sample_offsets"][:-1]

    def token_counts(self, vocab_size: int) -> "np.ndarray[Any, Any]":
        """How often each token stands at a position that counts for the loss: int64 [vocab_size].

        Raises Precondition for a token that a target of that size does not have.
        """
        counts = np.zeros(vocab_size, np.int64)
        for ids, mask, _ in self.shard_tokens():
            found = np.bincount(ids[mask], minlength=vocab_size)
            if len(found) > vocab_size:
                raise Precondition(
                    f"{self.directory} holds token {len(found) - 1}, the target has {vocab_size}",
                    hint="name the target that the store was extracted from",
                )
            counts += found
        return counts
