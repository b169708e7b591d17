"""From the rows of a forward pass to whole requests: what runs inside SGLang's scheduler process."""

import json
import os
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from .spool import Rows, SpoolWriter, WaitingMarker, publish, rows_on_host

PREFIX = "roost-"
"""Requests whose id begins so are captured; warm-up, health checks and other people's requests are not."""

_PROMPT_LENGTHS = "roost_prompt_lengths"


class CaptureHook:
    """The capture of one scheduler process; its first failure is written down and ends the capture, not the server."""

    def __init__(self, spool: Path, layer_ids: list[int]) -> None:
        self._spool = spool
        self._layer_ids = layer_ids
        self._parts: dict[str, list[Rows]] = {}
        self._writer: SpoolWriter | None = None
        self._failed = False

    def note_prompts(self, batch: Any, owner: type, scheduled: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401, ARG002
        """After `ForwardBatch.init_new`: keep how long each request's prompt is, which the batch itself forgets."""
        setattr(batch, _PROMPT_LENGTHS, [len(request.origin_input_ids) for request in scheduled.reqs])

    def take(self, output: Any, runner: Any, batch: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401 - SGLang's own types
        """After `ModelRunner.forward`: keep the rows of our requests from a prefill pass."""
        if self._failed or runner.is_draft_worker or not batch.forward_mode.is_extend():
            return
        try:
            self._take(output.logits_output, batch)
        except Exception:  # noqa: BLE001 - SGLang would lose it in its log; the extraction must hear of it
            self._failed = True
            traceback.print_exc()
            with suppress(OSError):
                report_failure(self._spool, traceback.format_exc())

    def _take(self, output: Any, batch: Any) -> None:  # noqa: ANN401
        rids = batch.rids or []
        hidden, final = output.hidden_states, output.last_hidden_states
        if hidden is None or final is None:
            if any(rid.startswith(PREFIX) for rid in rids):
                raise RuntimeError("the engine captured no hidden states: was it started with the capture flags?")
            return
        writer = self._announced()
        if rank() != 0:
            return  # with tensor parallelism every rank holds the full tensors
        counts, starts = batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu
        if hidden.shape[0] < sum(counts):
            raise RuntimeError(f"the engine captured {hidden.shape[0]} rows for {sum(counts)} tokens")
        row = 0
        for rid, count, start, length in zip(rids, counts, starts, getattr(batch, _PROMPT_LENGTHS), strict=True):
            if rid.startswith(PREFIX):
                rows = slice(row, row + count)
                states = hidden[rows].reshape(count, len(self._layer_ids), -1)
                self._join(rid, rows_on_host(int(start), states, final[rows], batch.input_ids[rows]), length, writer)
            row += count

    def _join(self, rid: str, rows: Rows, length: int, writer: SpoolWriter) -> None:
        # A request that the scheduler took back begins again at position 0.
        parts = self._parts.setdefault(rid, []) if rows.start else []
        expected = sum(len(part.input_ids) for part in parts)
        if rows.start != expected:
            raise RuntimeError(f"{rid}: rows from position {rows.start} follow rows up to {expected}")
        parts.append(rows)
        if rows.start + len(rows.input_ids) < length:
            self._parts[rid] = parts
            return
        self._parts.pop(rid, None)
        writer.put(rid, parts)

    def _announced(self) -> SpoolWriter:
        """The writer; its first use says in the spool that this rank captures."""
        if self._writer is None:
            from sglang.version import __version__  # noqa: PLC0415 - only inside the engine

            marker = WaitingMarker(self._spool / f"waiting-rank{rank()}.json")
            self._writer = SpoolWriter(
                self._spool, self._layer_ids, lambda error: report_failure(self._spool, error), marker
            )
            ready = {
                "engine": "sglang",
                "engine_version": __version__,
                "layer_ids": self._layer_ids,
                "pid": os.getpid(),
            }
            publish(self._spool / f"ready-rank{rank()}.json", json.dumps(ready))
        return self._writer


def report_failure(spool: Path, error: str) -> None:
    """Write `error-rank<r>.json`."""
    publish(spool / f"error-rank{rank()}.json", json.dumps({"error": error}))


def rank() -> int:
    """This process's rank among the engine's schedulers."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
