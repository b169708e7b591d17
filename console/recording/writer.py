"""Write a recording: every line is on the disk as soon as it is told, or within a second where it is compressed."""

import gzip
import os
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from console.errors import UsageError
from console.recording.format import Recorded

_FLUSH_EVERY_S = 1.0


class RecordingWriter:
    """A new file, gzip when its name ends in .gz; raises UsageError for one that exists or cannot be made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = 0
        self._encoder = msgspec.json.Encoder()
        try:
            self._file: BinaryIO = path.open("xb")
        except FileExistsError:
            raise UsageError(
                f"{path} exists; a recording goes into a file of its own", hint="name another file, or remove that one"
            ) from None
        except OSError as error:
            raise UsageError(f"cannot write the recording {path}: {error.strerror}") from error
        self._compressed = gzip.GzipFile(fileobj=self._file, mode="wb") if path.suffix == ".gz" else None
        self._flushed_at = time.monotonic()

    def write(self, record: Recorded) -> None:
        """Add a line; raises OSError."""
        line = self._encoder.encode(record) + b"\n"
        self.records += 1
        if self._compressed is None:
            self._file.write(line)
            self._file.flush()
            return
        self._compressed.write(line)
        if time.monotonic() - self._flushed_at >= _FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Bring what is held back to the disk; raises OSError."""
        if self._compressed is not None:
            self._compressed.flush()
        self._file.flush()
        self._flushed_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A file into which nothing came is not left behind."""
        if self._compressed is not None:
            self._compressed.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if not self.records:
            self.path.unlink()
