"""Finished requests to safetensors files in the spool, off the engine's thread and within a bound of memory.

PyTorch and the standard library only: it runs inside an engine, whose Python knows nothing of the release.
"""

import errno
import json
import os
import queue
import re
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

_OUR_ID = re.compile(r"roost-[A-Za-z0-9._-]+\Z")

ROOM_POLL_S = 1.0
_BEHIND_POLL_S = 0.005
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_MARKER_BYTES = 4096
_TAGS = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.int64: "I64"}


class Setting(NamedTuple):
    """What the launch says in the environment: where the spool is, which Hugging Face layers, and how many bytes all ranks may hold."""

    directory: Path
    layer_ids: list[int]
    memory_bytes: int

    @classmethod
    def from_environment(cls) -> "Setting | None":
        """None where nothing is to be captured."""
        directory = os.environ.get("ROOST_CAPTURE_SPOOL")
        if not directory:
            return None
        layer_ids = [int(layer_id) for layer_id in os.environ["ROOST_CAPTURE_LAYER_IDS"].split(",")]
        return cls(Path(directory), layer_ids, int(os.environ["ROOST_CAPTURE_MEMORY_BYTES"]))


class Rows(NamedTuple):
    """Rows of one request from position `start` on, in the host's memory; `copied` is the CUDA event to wait for."""

    start: int
    hidden_states: torch.Tensor
    final_hidden_states: torch.Tensor
    input_ids: torch.Tensor
    copied: torch.cuda.Event | None

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        return host_bytes(self.hidden_states) + host_bytes(self.final_hidden_states)


def host_bytes(tensor: torch.Tensor) -> int:
    """What a copy of `tensor` takes on the host: PyTorch pins whole powers of two."""
    return 1 << (tensor.nbytes - 1).bit_length() if tensor.is_cuda or tensor.is_pinned() else tensor.nbytes


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
        return tensor.clone(memory_format=torch.contiguous_format)
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


class SpoolWriter:
    """Writes whole requests in a thread of its own; a failure is told to `report` and the request is lost.

    `reserve` is asked before rows are copied. It waits while the disk is behind, and with it the engine and the client. A full
    disk is no failure: the thread waits for room and `waiting` says so in the spool, while the engine goes on (its watchdog would
    kill a scheduler that stands still), for the extraction sends nothing more. What it had sent may then exceed the bound.
    """

    def __init__(
        self, setting: Setting, report: Callable[[str], None], waiting: "WaitingMarker", *, memory_bytes: int
    ) -> None:
        self._spool = setting.directory
        self._waiting = waiting
        self._metadata = {"layer_ids": ",".join(map(str, setting.layer_ids)), "final_norm": "post_norm"}
        self._report = report
        self._memory_bytes = memory_bytes
        self._held = 0
        self._unwritten = 0
        self._lock = threading.Lock()
        self._queue: queue.Queue[tuple[str, list[Rows]]] = queue.Queue()
        threading.Thread(target=self._run, name="roost-capture-writer", daemon=True).start()

    @property
    def held_bytes(self) -> int:
        """What was reserved and not yet written or released."""
        return self._held

    def reserve(self, nbytes: int, spare: Callable[[], int]) -> None:
        """Take `nbytes` of the bound; waits for the disk, then for what `spare` gives up (its bytes, 0 when it has nothing).

        Without either the bound is exceeded: a single request may be larger than all of it.
        """
        while self._held + nbytes > self._memory_bytes and not self._waiting.is_set:
            if self._unwritten:
                time.sleep(_BEHIND_POLL_S)
            elif freed := spare():
                self.release(freed)
            else:
                break
        with self._lock:
            self._held += nbytes

    def release(self, nbytes: int) -> None:
        """Give back what rows took that will never be written."""
        with self._lock:
            self._held -= nbytes

    def put(self, rid: str, parts: list[Rows]) -> None:
        """Queue a whole request, whose bytes were reserved."""
        with self._lock:
            self._unwritten += 1
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
            with self._lock:
                self._held -= sum(rows.nbytes for rows in parts)
                self._unwritten -= 1
            del parts

    def _write(self, rid: str, parts: list[Rows]) -> None:
        for rows in parts:
            if rows.copied is not None:
                rows.copied.synchronize()
        tensors = {
            "hidden_states": [rows.hidden_states for rows in parts],
            "final_hidden_states": [rows.final_hidden_states for rows in parts],
            "input_ids": [rows.input_ids.to(torch.int64) for rows in parts],
        }
        part = self._spool / f"{rid}.part"
        while (refusal := self._save(tensors, part)) is not None:
            needed = sum(piece.nbytes for pieces in tensors.values() for piece in pieces)
            self._waiting.set(part.with_suffix(".safetensors"), needed, refusal)
            time.sleep(ROOM_POLL_S)
        self._waiting.clear()

    def _save(self, tensors: dict[str, list[torch.Tensor]], part: Path) -> str | None:
        """Write and publish; how the system says that there is no room for it, after nothing of it is left."""
        try:
            save_pieces(tensors, part, self._metadata)
            part.replace(part.with_suffix(".safetensors"))
        except Exception as error:
            part.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _FULL_DISK:
                return str(error)
            raise
        return None


def save_pieces(tensors: dict[str, list[torch.Tensor]], path: Path, metadata: dict[str, str]) -> None:
    """A safetensors file of tensors that lie in pieces along the first dimension, without joining them in memory first."""
    header: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, pieces in tensors.items():
        start, end = end, end + sum(piece.nbytes for piece in pieces)
        shape = [sum(len(piece) for piece in pieces), *pieces[0].shape[1:]]
        header[name] = {"dtype": _TAGS[pieces[0].dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb", buffering=0) as file:
        for block in _blocks(len(text).to_bytes(8, "little") + text, tensors.values()):
            while block:
                block = block[file.write(block) :]  # noqa: PLW2901 - one write takes at most 2 GiB


def _blocks(head: bytes, tensors: Iterable[list[torch.Tensor]]) -> Iterable[memoryview]:
    yield memoryview(head)
    for piece in (piece for pieces in tensors for piece in pieces):
        yield piece.reshape(-1).view(torch.uint8).numpy().data


def is_ours(rid: object) -> bool:
    """Whether a request is to be captured, and its id may name a file; warm-up, health checks and other people's are not ours."""
    return isinstance(rid, str) and _OUR_ID.match(rid) is not None


def owner(rid: str, ranks: int) -> int:
    """The rank that writes a request, where every rank holds the same rows: the load on bus and memory is shared among them."""
    return zlib.crc32(rid.encode()) % ranks


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


def open_writer(setting: Setting, *, rank: int, ranks: int, engine: str, engine_version: str) -> SpoolWriter:
    """The writer of one of `ranks` processes, each with its share of the memory; says in the spool that this rank captures."""
    marker = WaitingMarker(setting.directory / f"waiting-rank{rank}.json")
    writer = SpoolWriter(
        setting,
        lambda error: report_failure(setting.directory, rank, error),
        marker,
        memory_bytes=setting.memory_bytes // ranks,
    )
    ready = {
        "engine": engine,
        "engine_version": engine_version,
        "layer_ids": setting.layer_ids,
        "pid": os.getpid(),
        "rank": rank,
        "ranks": ranks,
    }
    publish(setting.directory / f"ready-rank{rank}.json", json.dumps(ready))
    return writer


def report_failure(spool: Path, rank: int, error: str) -> None:
    """Write `error-rank<r>.json`."""
    publish(spool / f"error-rank{rank}.json", json.dumps({"error": error}))


def publish(path: Path, text: str) -> None:
    """Write a small file that is there whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
