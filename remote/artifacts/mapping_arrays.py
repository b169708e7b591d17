"""The tensors in a mapping's files, and what is wrong with how they lie there.

A tensor that only lies there wrongly (int32, big-endian, column-major) is read as what it means, so that its values are checked too.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from remote.artifacts.mapping_layouts import MappingPlace
from remote.artifacts.safetensors_file import open_safetensors
from remote.artifacts.torch_pickle import RefusedPickle, UnreadableTensor, read_saved, require_fetched
from remote.protocol.reports import Finding

Array = np.ndarray[Any, Any]

REBUILD = "build the mapping again, or copy it from a source that validates"
CONVERT = "`roost vocabulary convert SRC DST` writes it anew"

_REFUSED = "find out where it comes from; load it nowhere"
_MAX_BYTES = 64 << 20
_WANTED = {"d2t": np.dtype(np.int64), "t2d": np.dtype(np.bool_)}


def error(code: str, message: str, fix: str = REBUILD) -> Finding:
    """A finding that makes a mapping invalid."""
    return Finding(code=code, severity="error", message=message, fix=fix)


def warning(code: str, message: str, fix: str) -> Finding:
    """A finding that a person should look at."""
    return Finding(code=code, severity="warning", message=message, fix=fix)


class MappingArrays(NamedTuple):
    """What could be read, by file: `d2t` int64 and `t2d` bool vectors, little-endian."""

    offsets: dict[str, Array]
    masks: dict[str, Array]

    @property
    def d2t(self) -> Array | None:
        """The offsets of the first file that has them."""
        return next(iter(self.offsets.values()), None)

    @property
    def t2d(self) -> Array | None:
        """The mask of the first file that has it."""
        return next(iter(self.masks.values()), None)


def read_arrays(place: MappingPlace, findings: list[Finding]) -> MappingArrays:
    """Every tensor of a mapping that can be read; what is missing or wrong goes into `findings`."""
    arrays = MappingArrays({}, {})
    fix = _restoring(place)
    findings += [error("file-missing", f"{name} is missing", fix) for name in place.names if not _is_there(place, name)]
    for name in dict.fromkeys((*place.offsets, *place.masks)):
        if not _is_there(place, name):
            continue
        try:
            found = _read(place.directory / name, findings)
        except RefusedPickle as why:
            findings.append(error("pickle-refused", f"{name} holds more than tensors: {why}", _REFUSED))
            continue
        except UnreadableTensor as why:
            findings.append(error("file-unreadable", f"{name} cannot be read: {why}"))
            continue
        for stem, kept, names in (("d2t", arrays.offsets, place.offsets), ("t2d", arrays.masks, place.masks)):
            if name not in names:
                continue
            if isinstance(found, dict) != (name in place.offsets and name in place.masks):
                wanted = "d2t and t2d by name" if not isinstance(found, dict) else "one tensor"
                findings.append(error("file-unreadable", f"{name} does not hold {wanted}", CONVERT))
                break
            array = found.get(stem) if isinstance(found, dict) else found
            if array is None:
                findings.append(error("file-unreadable", f"{name} holds no {stem}"))
            elif (meant := _as_meant(name, stem, array, findings)) is not None:
                kept[name] = meant
    return arrays


def _restoring(place: MappingPlace) -> str:
    """What helps where files are missing: a pair of .npy files has all that a mapping says."""
    if place.layout == "roost" and _is_there(place, "d2t.npy") and _is_there(place, "t2d.npy"):
        return f"`roost vocabulary convert {place.directory / 'd2t.npy'} DST` makes a whole one of d2t.npy and t2d.npy"
    return REBUILD


def _is_there(place: MappingPlace, name: str) -> bool:
    return (place.directory / name).is_file()


def _read(path: Path, findings: list[Finding]) -> Array | dict[str, Array]:
    try:
        match path.suffix:
            case ".npy":
                return _read_npy(path, findings)
            case ".safetensors":
                return _read_drafter(path)
            case _:
                return read_saved(path)
    except OSError as why:
        raise UnreadableTensor(str(why)) from why


def _read_drafter(path: Path) -> Array | dict[str, Array]:
    """Both tensors by name, or the one that is there."""
    tensors = open_safetensors(path).arrays
    found = {name: array for key, array in tensors.items() if (name := key.removeprefix("model.")) in _WANTED}
    return found if len(found) > 1 else next(iter(found.values()))


def _read_npy(path: Path, findings: list[Finding]) -> Array:
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise UnreadableTensor(f"the file has {size} bytes; no mapping is that large")
    require_fetched(path)
    try:
        with path.open("rb") as file:
            is_column_major = _is_column_major(file)
            file.seek(0)
            array = npy.read_array(file, allow_pickle=False)
            rest = len(file.read(1))
    except OSError:
        raise
    except Exception as why:  # a damaged header makes numpy raise nearly anything
        raise UnreadableTensor(f"no whole .npy file: {why or type(why).__name__}") from why
    if is_column_major:
        message = f"{path.name} says that it is in Fortran order: numpy reads it alike, other readers need not"
        findings.append(warning("fortran-order", message, CONVERT))
    if rest:
        message = f"{path.name} goes on after its array: two writers, or a file that was not cut off"
        findings.append(error("trailing-bytes", message))
    return array


def _is_column_major(file: Any) -> bool:  # noqa: ANN401 - a binary file
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return bool(read_header(file)[1])


def _as_meant(name: str, stem: str, array: Array, findings: list[Finding]) -> Array | None:
    """The tensor in the type that it should have, None where that would be a guess."""
    wanted = _WANTED[stem]
    if array.ndim != 1:
        findings.append(error("shape-wrong", f"{name} has shape {array.shape}, a vector is needed"))
        return None
    if stem == "d2t" and array.dtype.newbyteorder("=") == np.int32:
        findings.append(error("dtype-int32", f"{name} is int32, int64 is needed", CONVERT))
    elif array.dtype.newbyteorder("=") != wanted:
        findings.append(error("dtype-wrong", f"{name} is {array.dtype}, {wanted} is needed"))
        return None
    if not array.dtype.isnative:
        findings.append(error("byte-order-wrong", f"{name} is big-endian ({array.dtype.str})", CONVERT))
    if stem == "t2d" and len(array) and array.view(np.uint8).max() > 1:
        findings.append(error("value-not-bool", f"{name} holds bytes that are neither 0 nor 1"))
        return None
    return array.astype(wanted)
