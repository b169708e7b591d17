"""Finished requests to safetensors files in the spool, off the scheduler's thread."""

import os
import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file

QUEUE_LENGTH = 8
"""Whole requests that may wait for the disk; a full queue makes the engine wait, and with it the client."""


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
    """Writes whole requests in a thread of its own; a failure is told to `report` and the request is lost."""

    def __init__(self, spool: Path, layer_ids: list[int], report: Callable[[str], None]) -> None:
        self._spool = spool
        self._metadata = {"layer_ids": ",".join(map(str, layer_ids)), "final_norm": "post_norm"}
        self._report = report
        self._queue: queue.Queue[tuple[str, list[Rows]]] = queue.Queue(QUEUE_LENGTH)
        threading.Thread(target=self._run, name="roost-capture-writer", daemon=True).start()

    def put(self, rid: str, parts: list[Rows]) -> None:
        """Queue a request; waits while the disk is behind."""
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
        save_file(tensors, part, metadata=self._metadata)
        part.replace(self._spool / f"{rid}.safetensors")


def publish(path: Path, text: str) -> None:
    """Write a small file that is there whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
