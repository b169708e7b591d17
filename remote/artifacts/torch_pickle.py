"""Reading vectors saved by `torch.save` without torch and without executing anything.

A `.pt` file is a zip of stored entries: `<stem>/data.pkl` rebuilds the tensor from `<stem>/data/<key>` and
`<stem>/byteorder` says how the numbers lie (torch 2.13, `torch/serialization.py`). The pickle may name exactly the tensor
rebuilder, the storage types below and OrderedDict; anything else is refused before it could run.
"""

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_DTYPES = {
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "BoolStorage": np.dtype(np.bool_),
    "ByteStorage": np.dtype(np.uint8),
    "FloatStorage": np.dtype(np.float32),
    "DoubleStorage": np.dtype(np.float64),
}

_MAX_BYTES = 64 << 20
_POINTER = b"version https://git-lfs"


class UnreadableTensor(ValueError):
    """A file that is no plain tensor of `torch.save`; says why."""


class RefusedPickle(UnreadableTensor):
    """A pickle that asks for what no tensor needs; it was not executed."""


class _Storage(NamedTuple):
    dtype: "np.dtype[Any]"
    key: str
    count: int


def _rebuild_tensor(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> "tuple[_Storage, int, tuple[int, ...], tuple[int, ...]]":
    return storage, offset, size, stride


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own signature
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        raise RefusedPickle(f"the pickle asks for {module}.{name}, which no plain tensor needs; it was not executed")

    def persistent_load(self, pid: Any) -> _Storage:  # noqa: ANN401 - pickle's own signature
        kind, dtype, key, _location, count = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise UnreadableTensor("the pickle refers to something that is no storage")
        return _Storage(dtype, str(key), int(count))


Array = np.ndarray[Any, Any]


def read_tensor(path: Path) -> Array:
    """The one-dimensional tensor in a `.pt` file; raises UnreadableTensor for everything else, OSError for I/O."""
    value = read_saved(path)
    if isinstance(value, dict):
        raise UnreadableTensor("it holds several tensors by name, not one")
    return value


def read_saved(path: Path) -> Array | dict[str, Array]:
    """The one-dimensional tensor in a `.pt` file, or its dictionary of them.

    Raises UnreadableTensor for everything else, OSError for I/O.
    """
    if path.stat().st_size > _MAX_BYTES:
        raise UnreadableTensor(f"the file has {path.stat().st_size} bytes; no mapping is that large")
    require_fetched(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive)
    except UnreadableTensor:
        raise
    except (pickle.UnpicklingError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise UnreadableTensor(f"its pickle holds no plain tensor: {error}") from error
    except OSError:
        raise
    except Exception as error:  # a damaged archive makes zipfile and pickle raise nearly anything
        raise UnreadableTensor(f"no whole torch.save archive: {error or type(error).__name__}") from error


def require_fetched(path: Path) -> None:
    """Raise UnreadableTensor for what a checkout leaves in the place of a large file."""
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UnreadableTensor("it is a pointer of Git LFS, not the file: `git lfs pull` fetches that")


def _read(archive: zipfile.ZipFile) -> Array | dict[str, Array]:
    if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
        raise UnreadableTensor("unpacked it would be larger than any mapping")
    pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise UnreadableTensor("no data.pkl in the archive")
    stem = pickles[0].removesuffix("data.pkl")
    value = _Unpickler(io.BytesIO(archive.read(pickles[0]))).load()
    if isinstance(value, dict):
        return {str(name): _array(archive, stem, tensor) for name, tensor in value.items()}
    return _array(archive, stem, value)


def _array(archive: zipfile.ZipFile, stem: str, value: object) -> Array:
    if not (isinstance(value, tuple) and len(value) == 4 and isinstance(value[0], _Storage)):
        raise UnreadableTensor(f"it holds a {type(value).__name__}, not one tensor")
    storage, offset, size, stride = value
    if len(size) != 1 or tuple(stride) != (1,) or offset != 0:
        raise UnreadableTensor(f"the tensor has shape {tuple(size)}, stride {tuple(stride)}; a plain vector is needed")
    names = set(archive.namelist())
    order = archive.read(stem + "byteorder") if stem + "byteorder" in names else b"little"
    if order not in {b"little", b"big"}:
        raise UnreadableTensor(f"its byte order is {order[:16]!r}")
    data = archive.read(f"{stem}data/{storage.key}")
    dtype = storage.dtype.newbyteorder(">" if order == b"big" else "<")
    if len(data) != storage.count * dtype.itemsize or not 0 <= size[0] <= storage.count:
        raise UnreadableTensor(f"the storage has {len(data)} bytes, its tensor needs {size[0] * dtype.itemsize}")
    return np.frombuffer(data, dtype)[: size[0]].astype(storage.dtype)
