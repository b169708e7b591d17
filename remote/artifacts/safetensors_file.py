"""The format of safetensors files, and reading them with numpy alone, bfloat16 as uint16 bit patterns.

Format: 8 bytes little-endian header length, a JSON header `{name: {dtype, shape, data_offsets}}`, then the tensors' bytes
(huggingface/safetensors, README "Format").
"""

import json
import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remote.errors import Precondition

_NUMPY_OF = {
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
TAG_OF_DTYPE = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""Model dtypes to safetensors tags."""

_ALIGNMENT = 8
_MAX_HEADER_BYTES = 100 << 20


def numpy_dtype(dtype: str) -> "np.dtype[Any]":
    """How a model dtype lies in numpy: bfloat16 as uint16."""
    return _NUMPY_OF[TAG_OF_DTYPE[dtype]]


class Shape(NamedTuple):
    """A tensor that is to come: its safetensors tag and its shape."""

    tag: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> "np.dtype[Any]":
        """How its values lie in numpy."""
        return _NUMPY_OF[self.tag]

    @property
    def nbytes(self) -> int:
        """The bytes of its values."""
        return math.prod(self.shape) * self.dtype.itemsize


def header_of(shapes: Mapping[str, Shape], metadata: dict[str, str]) -> bytes:
    """The header of a file of these tensors, in their order."""
    entries: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, shape in shapes.items():
        entries[name] = {
            "dtype": shape.tag,
            "shape": list(shape.shape),
            "data_offsets": [offset, offset + shape.nbytes],
        }
        offset += shape.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def file_bytes(shapes: Mapping[str, Shape], metadata: dict[str, str]) -> int:
    """The size of a file of these tensors, to the byte."""
    return len(header_of(shapes, metadata)) + sum(shape.nbytes for shape in shapes.values())


class OpenTensors(NamedTuple):
    """The tensors of a file as memory-mapped arrays, and its metadata."""

    arrays: "dict[str, np.ndarray[Any, Any]]"
    tags: dict[str, str]
    metadata: dict[str, str]


def open_safetensors(path: Path) -> OpenTensors:
    """Map a file; raises Precondition when its header does not fit its size."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MAX_HEADER_BYTES:
                raise ValueError("the header is too long")
            entries = json.loads(file.read(length))
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        metadata = entries.pop("__metadata__", {})
        data = np.frombuffer(whole, np.uint8)[8 + length :]
        arrays = {name: _view(data, entry) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise Precondition(f"{path} is no whole safetensors file: {error}", hint="make it again") from error
    return OpenTensors(arrays, {name: entry["dtype"] for name, entry in entries.items()}, metadata)


def _view(data: "np.ndarray[Any, Any]", entry: dict[str, Any]) -> "np.ndarray[Any, Any]":
    start, end = entry["data_offsets"]
    dtype = _NUMPY_OF[entry["dtype"]]
    if end > len(data) or end - start != math.prod(entry["shape"]) * dtype.itemsize:
        raise ValueError(f"the tensor bytes [{start}, {end}) are not there")
    return data[start:end].view(dtype).reshape(entry["shape"])
