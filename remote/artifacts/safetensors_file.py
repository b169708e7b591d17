"""Reading and writing safetensors with numpy alone, bfloat16 as uint16 bit patterns.

Format: 8 bytes little-endian header length, a JSON header `{name: {dtype, shape, data_offsets}}`, then the tensors' bytes
(huggingface/safetensors, README "Format").
"""

import hashlib
import json
import math
import os
import struct
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


class Tensor(NamedTuple):
    """A tensor to be written: its safetensors tag, its shape, and pieces that follow each other along the first axis."""

    tag: str
    shape: tuple[int, ...]
    pieces: "list[np.ndarray[Any, Any]]"


def _header(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        size = math.prod(tensor.shape) * _NUMPY_OF[tensor.tag].itemsize
        entries[name] = {"dtype": tensor.tag, "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> tuple[int, str]:
    """Write `path` durably (by `.part` and rename); returns its size and SHA-256. What finds no room leaves nothing behind.

    Order the tensors by falling item size so that every one stays aligned.
    """
    part = path.with_name(path.name + ".part")
    try:
        size, sha256 = _write_durably(part, tensors, metadata)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return size, sha256


def _write_durably(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    with path.open("wb") as file:
        header = _header(tensors, metadata)
        blocks = [memoryview(header)]
        for tensor in tensors.values():
            dtype = _NUMPY_OF[tensor.tag]
            blocks += [
                np.ascontiguousarray(piece, dtype=dtype).reshape(-1).view(np.uint8).data for piece in tensor.pieces
            ]
        for block in blocks:
            file.write(block)
            digest.update(block)
            size += len(block)
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


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
        metadata = entries.pop("__metadata__", {})
        data = (
            np.memmap(path, np.uint8, "r", offset=8 + length)
            if path.stat().st_size > 8 + length
            else np.empty(0, np.uint8)
        )
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
