"""What is in which shard of a store, known before the first row is captured; pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from remote.artifacts.hidden_states import FORMAT, StoreProperties
from remote.artifacts.safetensors_file import TAG_OF_DTYPE, Shape, file_bytes

METADATA = {"format": FORMAT}
"""Of every shard's header, to whose size it belongs."""


class Planned(NamedTuple):
    """A sample that is to come: ids int64 [T], mask bool [T]."""

    sample_id: str
    input_ids: np.ndarray[Any, Any]
    loss_mask: np.ndarray[Any, Any]


def shard_shapes(properties: StoreProperties, *, samples: int, tokens: int) -> dict[str, Shape]:
    """The tensors of a shard, by falling item size so that every one is aligned."""
    tag, hidden = TAG_OF_DTYPE[properties.dtype], properties.hidden_size
    return {
        "sample_offsets": Shape("I64", (samples + 1,)),
        "input_ids": Shape("I64", (tokens,)),
        "hidden_states": Shape(tag, (tokens, properties.layer_count, hidden)),
        "final_hidden_states": Shape(tag, (tokens, hidden)),
        "loss_mask": Shape("BOOL", (tokens,)),
    }


def len_of_shard(lengths: Sequence[int], properties: StoreProperties, shard_bytes: int) -> int:
    """How many of the samples of these lengths the next shard takes: at least one."""
    tokens = 0
    for count, length in enumerate(lengths):
        tokens += length
        if count and file_bytes(shard_shapes(properties, samples=count + 1, tokens=tokens), METADATA) > shard_bytes:
            return count
    return len(lengths)


def planned_shards(lengths: Sequence[int], properties: StoreProperties, shard_bytes: int) -> list[int]:
    """The size of every shard of a store of samples of these lengths, to the byte."""
    sizes: list[int] = []
    start = 0
    while start < len(lengths):
        count = len_of_shard(lengths[start:], properties, shard_bytes)
        shapes = shard_shapes(properties, samples=count, tokens=sum(lengths[start : start + count]))
        sizes.append(file_bytes(shapes, METADATA))
        start += count
    return sizes
