"""The progress of a job on disk: whole records, numbered without gaps, whatever a full disk cuts off."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from remote.artifacts import reserve
from remote.protocol.codec import encode_line
from remote.protocol.progress import (
    ArmAdvanced,
    BenchmarkAdvanced,
    ExtractionAdvanced,
    FilesCopied,
    FilesRemoved,
    Progress,
    ProgressRecord,
    ServerPhase,
    StoreChecked,
)

_REPLACEABLE = (
    ArmAdvanced,
    BenchmarkAdvanced,
    ExtractionAdvanced,
    FilesCopied,
    FilesRemoved,
    ServerPhase,
    StoreChecked,
)
"""Events of which only the latest matters to whoever missed the others."""

_SPARED_PIECES = reserve.PIECES // 2
"""Of the reserve, for the records of how jobs end."""

_MOST_UNTOLD = 10_000


class ProgressFile:
    """Appends records; what finds no room, not even in the reserve, is kept and told with the next that does."""

    def __init__(self, path: Path, root: Path, encode: Callable[[ProgressRecord], bytes] = encode_line) -> None:
        self._root = root
        self._encode = encode
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = reserve.insist(root, lambda: os.open(path, flags, 0o600))
        self._lock = threading.Lock()
        self._untold: list[tuple[float, Progress]] = []
        self._end, self._seq = self._cut_torn_record(path.read_bytes())

    def _cut_torn_record(self, data: bytes) -> tuple[int, int]:
        """The end of the last whole record, which is the end of the file from now on, and how many there are."""
        end = data.rfind(b"\n") + 1
        if end < len(data):
            os.ftruncate(self._descriptor, end)
        return end, data.count(b"\n")

    def tell(self, event: Progress, at: float) -> None:
        """Append an event that happened `at`; safe from any thread. Raises ProtocolError for one over 1 MiB."""
        self._encode(ProgressRecord(seq=self._seq + 1, at=at, event=event))
        with self._lock:
            if isinstance(event, _REPLACEABLE):
                self._untold = [told for told in self._untold if type(told[1]) is not type(event)]
            self._untold = [*self._untold, (at, event)][-_MOST_UNTOLD:]
            self._catch_up()

    def catch_up(self) -> bool:
        """Try to tell what could not be told; whether everything is told now."""
        with self._lock:
            return self._catch_up()

    def _catch_up(self) -> bool:
        while self._untold:
            at, event = self._untold[0]
            line = self._encode(ProgressRecord(seq=self._seq + 1, at=at, event=event))
            try:
                reserve.insist(self._root, lambda line=line: self._append(line), spare=_SPARED_PIECES)
            except OSError as error:
                if not reserve.is_full(error):
                    raise
                return False
            self._seq += 1
            self._end += len(line)
            del self._untold[0]
        return True

    def _append(self, line: bytes) -> None:
        """The whole line or nothing: what a full disk took of it is cut back, the rest tried again for the system's own error."""
        done = 0
        try:
            while done < len(line):
                done += os.write(self._descriptor, line[done:])
        except OSError:
            os.ftruncate(self._descriptor, self._end)
            raise
