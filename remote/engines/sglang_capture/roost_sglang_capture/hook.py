"""From the rows of a forward pass to whole requests: what runs inside SGLang's scheduler process."""

import traceback
from contextlib import suppress
from typing import Any

import torch
from roost_capture_spool import (
    Rows,
    Setting,
    SpoolWriter,
    host_bytes,
    is_ours,
    open_writer,
    owner,
    report_failure,
    rows_on_host,
)

_PROMPT_LENGTHS = "roost_prompt_lengths"


class CaptureHook:
    """The capture of one scheduler process; its first failure is written down and ends the capture, not the server."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
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
                report_failure(self._setting.directory, ranks()[0], traceback.format_exc())

    def _take(self, output: Any, batch: Any) -> None:  # noqa: ANN401
        rids = batch.rids or []
        hidden, final = output.hidden_states, output.last_hidden_states
        if hidden is None or final is None:
            if any(is_ours(rid) for rid in rids):
                raise RuntimeError("the engine captured no hidden states: was it started with the capture flags?")
            return
        writer = self._announced()
        counts, starts = batch.extend_seq_lens_cpu, batch.extend_prefix_lens_cpu
        if hidden.shape[0] < sum(counts) or final.shape[0] < sum(counts):
            raise RuntimeError(
                f"the engine captured {hidden.shape[0]} rows and {final.shape[0]} final ones for {sum(counts)} tokens"
            )
        rank, count_of_ranks = ranks()
        row = 0
        for rid, count, start, length in zip(rids, counts, starts, getattr(batch, _PROMPT_LENGTHS), strict=True):
            if is_ours(rid) and owner(rid, count_of_ranks) == rank:
                rows = slice(row, row + count)
                states = hidden[rows].reshape(count, len(self._setting.layer_ids), -1)
                writer.reserve(host_bytes(states) + host_bytes(final[rows]), lambda: self._give_up_one_but(rids))
                self._join(rid, rows_on_host(int(start), states, final[rows], batch.input_ids[rows]), length, writer)
            row += count

    def _join(self, rid: str, rows: Rows, length: int, writer: SpoolWriter) -> None:
        if not rows.start:
            # A request that the scheduler took back begins again at position 0.
            writer.release(sum(part.nbytes for part in self._parts.pop(rid, [])))
        parts = self._parts.pop(rid, [])
        expected = sum(len(part.input_ids) for part in parts)
        if rows.start != expected:
            raise RuntimeError(f"{rid}: rows from position {rows.start} follow rows up to {expected}")
        parts.append(rows)
        if rows.start + len(rows.input_ids) < length:
            self._parts[rid] = parts
        else:
            writer.put(rid, parts)

    def _give_up_one_but(self, rids: list[str]) -> int:
        """Forget the oldest unfinished request that is not in this pass, one that was cancelled; should it go on, that is an error."""
        rid = next((rid for rid in self._parts if rid not in rids), None)
        return 0 if rid is None else sum(part.nbytes for part in self._parts.pop(rid))

    def _announced(self) -> SpoolWriter:
        """The writer; its first use says in the spool that this rank captures."""
        if self._writer is None:
            from sglang.version import __version__  # noqa: PLC0415 - only inside the engine

            rank, count = ranks()
            self._writer = open_writer(
                self._setting, rank=rank, ranks=count, engine="sglang", engine_version=__version__
            )
        return self._writer


def ranks() -> tuple[int, int]:
    """This process's rank among the engine's schedulers, and how many they are."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
