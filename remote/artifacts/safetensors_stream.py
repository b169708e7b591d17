"""Writing safetensors files piece by piece, durably, in bounded memory."""

import errno
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remote.artifacts.atomic import reserve_bytes, start_writing_back, sync_directory
from remote.artifacts.safetensors_file import Shape, header_of

_BLOCK_BYTES = 4 << 20


class Tensor(NamedTuple):
    """A tensor to be written: its safetensors tag, its shape, and pieces that follow each other along the first axis."""

    tag: str
    shape: tuple[int, ...]
    pieces: "list[np.ndarray[Any, Any]]"


def write_safetensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> tuple[int, str]:
    """Write `path` durably (by `.part` and rename); returns its size and SHA-256. What finds no room leaves nothing behind.

    Order the tensors by falling item size so that every one stays aligned.
    """
    shapes = {name: Shape(tensor.tag, tensor.shape) for name, tensor in tensors.items()}
    stream = StreamedSafetensors(path, shapes, metadata)
    try:
        for name, tensor in tensors.items():
            for piece in tensor.pieces:
                stream.write(name, piece)
        return stream.finish()
    except BaseException:
        stream.discard()
        raise


class _Region:
    """Where a tensor lies in the file, and how far it is written."""

    def __init__(self, shape: Shape, start: int) -> None:
        self.dtype = shape.dtype
        self.start = start
        self.end = start + shape.nbytes
        self.done = 0


class StreamedSafetensors:
    """`path` in the making: sizes known, room reserved at once, rows written as they come, hashed on the way, the header last.

    What is written in the order of the file is hashed by a thread meanwhile; what is not (a second tensor that grows beside the
    first) is read back at the end, out of the page cache. Until then the file is `<path>.part` without a header. A call that
    found no room may be repeated.
    """

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, Shape],
        metadata: dict[str, str],
        *,
        done: Mapping[str, int] | None = None,
    ) -> None:
        """`done` names the bytes of each tensor that an earlier writer left in the part file, which is then gone on with."""
        self.path = path
        self._part = part_of(path)
        self._metadata = metadata
        self._lay_out(shapes)
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="hash")
        self._broken: OSError | None = None
        fresh = os.O_TRUNC if done is None else 0
        self._descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | fresh, 0o644)
        try:
            self.is_reserved = reserve_bytes(self._descriptor, self.size)
        except OSError:
            self.discard()
            raise
        for name, count in (done or {}).items():
            self._regions[name].done = count

    def _lay_out(self, shapes: Mapping[str, Shape]) -> None:
        self._header = header_of(shapes, self._metadata)
        self._regions: dict[str, _Region] = {}
        offset = len(self._header)
        for name, shape in shapes.items():
            self._regions[name] = _Region(shape, offset)
            offset = self._regions[name].end
        self.size = offset
        self._digest = hashlib.sha256(self._header)
        self._hashed_to = len(self._header)
        self._hashing: Future[None] | None = None

    def written(self) -> dict[str, int]:
        """How many bytes of each tensor are there."""
        return {name: region.done for name, region in self._regions.items()}

    def write(self, name: str, rows: "np.ndarray[Any, Any]") -> None:
        """The next rows of a tensor; the array must stay as it is. Raises ValueError for more than its shape has."""
        region = self._regions[name]
        data = np.ascontiguousarray(rows, dtype=region.dtype).reshape(-1).view(np.uint8).data
        offset = region.start + region.done
        if offset + len(data) > region.end:
            raise ValueError(f"{self.path.name}: more rows of {name} than were planned")
        _write_at(self._descriptor, data, offset)
        start_writing_back(self._descriptor, offset, len(data))
        region.done += len(data)
        if offset == self._hashed_to:
            self._hash(lambda: self._digest.update(data))
            self._hashed_to += len(data)

    def _hash(self, update: Callable[[], None]) -> None:
        """One piece behind the writing, so that what waits for the thread stays bounded."""
        if self._hashing is not None:
            self._hashing.result()
        self._hashing = self._hasher.submit(update)

    def take_out(self, shapes: Mapping[str, Shape], growing: Collection[str]) -> None:
        """Go on with smaller shapes: the rows of `growing` tensors move, everything else is to be written anew.

        It happens in place, from the front, so it needs no room.
        """
        if self._hashing is not None:
            self._hashing.result()
        before = self._regions
        self._lay_out(shapes)
        for name in self._regions:
            if name in growing:
                done = before[name].done
                _move(self._descriptor, before[name].start, self._regions[name].start, done)
                self._regions[name].done = done
        os.ftruncate(self._descriptor, self.size)

    def hash_of_written(self, names: Iterable[str]) -> str:
        """The SHA-256 of the rows of `names` that are there so far."""
        digest = hashlib.sha256()
        for name in names:
            region = self._regions[name]
            self._read_into(digest, region.start, region.start + region.done)
        return digest.hexdigest()

    def finish(self) -> tuple[int, str]:
        """Make it durable under its name; returns size and SHA-256.

        Raises OSError when the system lost what was written: the file must then be made anew, for the loss is told only once.
        """
        if self._broken is not None:
            raise OSError(errno.EIO, "an earlier attempt to make it durable failed", str(self._part)) from self._broken
        if missing := [name for name, region in self._regions.items() if region.start + region.done != region.end]:
            raise ValueError(f"{self.path.name}: rows of {', '.join(missing)} are missing")
        self._hash(lambda: self._read_into(self._digest, self._hashed_to, self.size))
        try:
            os.fsync(self._descriptor)
            _write_at(self._descriptor, memoryview(self._header), 0)
            os.fsync(self._descriptor)
        except OSError as error:
            self._broken = error
            raise
        if self._hashing is not None:
            self._hashing.result()
        self._hashed_to = self.size
        self._part.replace(self.path)
        sync_directory(self.path.parent)
        self.close()
        return self.size, self._digest.hexdigest()

    def _read_into(self, digest: "hashlib._Hash", start: int, end: int) -> None:
        while start < end:
            block = os.pread(self._descriptor, min(_BLOCK_BYTES, end - start), start)
            if not block:
                raise OSError(errno.EIO, "what was written is not there", str(self._part))
            digest.update(block)
            start += len(block)

    def keep(self) -> None:
        """Make what is there durable and leave it as a part file, to be gone on with."""
        os.fsync(self._descriptor)
        self.close()

    def discard(self) -> None:
        """Leave nothing behind; does nothing after `finish`."""
        if self._descriptor >= 0:
            self.close()
            self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """Let the file go as it is."""
        self._hasher.shutdown(wait=True, cancel_futures=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def part_of(path: Path) -> Path:
    """Where a file lies while it is made."""
    return path.with_name(path.name + ".part")


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def _move(descriptor: int, source: int, destination: int, size: int) -> None:
    """Bytes towards the front of a file; the two ranges may overlap."""
    done = 0
    while done < size:
        block = os.pread(descriptor, min(_BLOCK_BYTES, size - done), source + done)
        _write_at(descriptor, memoryview(block), destination + done)
        done += len(block)
