"""Finished requests to safetensors files in the spool, off the scheduler's thread."""

import errno
import json
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file

QUEUE_LENGTH = 8
"""Whole requests that may wait for the disk; a full queue makes the engine wait, and with it the client."""

ROOM_POLL_S = 1.0
_BEHIND_POLL_S = 0.005
_FULL_WORDS = ("os error 28", "os error 122")
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_MARKER_BYTES = 4096


class Rows(NamedTuple):
    """Rows of one request from position `start` on, in the host's memory; `copied` is the CUDA event to wait for."""

    start: int
    hidden_states: torch.Tensor
    final_hidden_states: torch.Tensor
    input_ids: torch.Tensor
    copied: torch.cuda.Event | None


def rows_on_host(start: int, hidden: torch.Tensor, final: torch.Tensor, input_ids: torch.Tensor) -> Rows:
    """Copies that no later pass can change; from a GPU into pinned memory, asynchronously on the current stream.

    hidden [n, L, H], final [n, H], input_ids [n].
    """
    hidden_copy, final_copy, ids_copy = (_on_host(tensor) for tensor in (hidden, final, input_ids))
    copied = None
    if hidden.is_cuda:
        copied = torch.cuda.Event()
        copied.record()
    return Rows(start, hidden_copy, final_copy, ids_copy, copied)


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda:
        return tensor.clone()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


class SpoolWriter:
    """Writes whole requests in a thread of its own; a failure is told to `report` and the request is lost.

    A full disk is no failure: the thread waits for room, `waiting` says so in the spool, and the engine goes on meanwhile (its
    watchdog would kill a scheduler that stands still), for the extraction sends it nothing more.
    """

    def __init__(
        self, spool: Path, layer_ids: list[int], report: Callable[[str], None], waiting: "WaitingMarker"
    ) -> None:
        self._spool = spool
        self._waiting = waiting
        self._metadata = {"layer_ids": ",".join(map(str, layer_ids)), "final_norm": "post_norm"}
        self._report = report
        self._queue: queue.Queue[tuple[str, list[Rows]]] = queue.Queue()
        threading.Thread(target=self._run, name="roost-capture-writer", daemon=True).start()

    def put(self, rid: str, parts: list[Rows]) -> None:
        """Queue a request; waits while the disk is behind, but not for one that is full."""
        while self._queue.qsize() >= QUEUE_LENGTH and not self._waiting.is_set:
            time.sleep(_BEHIND_POLL_S)
        self._queue.put((rid, parts))

    def _run(self) -> None:
        while True:
            rid, parts = self._queue.get()
            try:
                self._write(rid, parts)
            except Exception:  # noqa: BLE001 - the thread must go on emptying the queue, or the engine would hang
                traceback.print_exc()
                with suppress(OSError):
                    self._report(traceback.format_exc())

    def _write(self, rid: str, parts: list[Rows]) -> None:
        for rows in parts:
            if rows.copied is not None:
                rows.copied.synchronize()
        tensors = {
            "hidden_states": torch.cat([rows.hidden_states for rows in parts]),
            "final_hidden_states": torch.cat([rows.final_hidden_states for rows in parts]),
            "input_ids": torch.cat([rows.input_ids for rows in parts]).to(torch.int64),
        }
        part = self._spool / f"{rid}.part"
        while (refusal := self._save(tensors, part)) is not None:
            needed = sum(tensor.nbytes for tensor in tensors.values())
            self._waiting.set(part.with_suffix(".safetensors"), needed, refusal)
            time.sleep(ROOM_POLL_S)
        self._waiting.clear()

    def _save(self, tensors: dict[str, torch.Tensor], part: Path) -> str | None:
        """Write and publish; how the system says that there is no room for it, after nothing of it is left."""
        try:
            save_file(tensors, part, metadata=self._metadata)
            part.replace(part.with_suffix(".safetensors"))
        except Exception as error:
            part.unlink(missing_ok=True)
            if is_full(error):
                return str(error)
            raise
        return None


def is_full(error: Exception) -> bool:
    """Whether a write failed for want of room; safetensors says so only in the words of its own error."""
    if isinstance(error, OSError):
        return error.errno in _FULL_DISK
    return any(words in str(error) for words in _FULL_WORDS)


class WaitingMarker:
    """`waiting-rank<r>.json`: `{}`, or what the writer waits for. Made at the start and only overwritten, so it needs no room."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_set = False
        publish(path, "{}".ljust(_MARKER_BYTES))

    def set(self, path: Path, bytes_needed: int, refusal: str) -> None:
        """The writer waits for room for `path`; said again and again, so that a marker of a dead server grows old."""
        self.is_set = True
        self._overwrite({"path": str(path), "bytes_needed": bytes_needed, "refusal": refusal[:500]})

    def clear(self) -> None:
        """It goes on."""
        if self.is_set:
            self.is_set = False
            self._overwrite({})

    def _overwrite(self, content: dict[str, str | int]) -> None:
        with suppress(OSError), self._path.open("r+b", buffering=0) as file:
            file.write(json.dumps(content).encode().ljust(_MARKER_BYTES)[:_MARKER_BYTES])


def publish(path: Path, text: str) -> None:
    """Write a small file that is there whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
