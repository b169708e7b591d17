"""From the blocks of a finished request to its file in the spool: half of it runs in vLLM's scheduler, half in its workers."""

import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from roost_capture_spool import (
    Setting,
    SpoolWriter,
    host_bytes,
    is_ours,
    open_writer,
    owner,
    report_failure,
    rows_on_host,
)
from vllm import __version__
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
    extract_from_kv_cache,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

from .final_norm import FinalNorm

REQUEST = "roost_request"
"""What a request says in `kv_transfer_params` to be captured: its id, which the file is named after."""


class _Copied:
    """Stands where upstream keeps the event of a copy, for copies that are made at once."""

    def query(self) -> bool:
        return True


class HiddenStatesConnector(ExampleHiddenStatesConnector):
    """Captures requests that ask for it by an id of ours; those of other people end as if there were no connector."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:  # noqa: ANN401 - vLLM's own types
        super().__init__(vllm_config, role, kv_cache_config)
        setting = Setting.from_environment()
        if setting is None:
            raise ValueError("this connector needs ROOST_CAPTURE_SPOOL")
        if vllm_config.cache_config.enable_prefix_caching:
            raise ValueError("hidden states are not captured with a prefix cache: what it has is not computed")
        self._setting = setting
        self._rank, self._ranks = 0, 1
        self._writer: SpoolWriter | None = None
        self._norm: FinalNorm | None = None

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """In each worker: find the states' cache, read the norm, and say in the spool that this rank captures."""
        super().register_kv_caches(kv_caches)
        cache = self._cache()
        if cache.shape[1] != len(self._setting.layer_ids) + 1:
            raise ValueError(
                f"the cache holds {cache.shape[1]} states a token, not {self._setting.layer_ids} and the last"
            )
        self._norm = FinalNorm.read(Path(self._vllm_config.model_config.model), cache.device, cache.dtype)
        self._rank, self._ranks = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
        self._writer = open_writer(
            self._setting, rank=self._rank, ranks=self._ranks, engine="vllm", engine_version=__version__
        )

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:  # noqa: ANN401
        """In the scheduler: keep the blocks of a request of ours until they are copied, if its prompt was computed to the end."""
        self._request_filenames.pop(request.request_id, None)
        rid = (request.kv_transfer_params or {}).get(REQUEST)
        # One that was cancelled before its first token has blocks that were never written.
        if not is_ours(rid) or not request.output_token_ids or request.prompt_token_ids is None:
            return False, None
        prompt = torch.tensor(request.prompt_token_ids)
        self._pending_saves[request.request_id] = PendingSave(request.request_id, rid, prompt, list(block_ids))
        return True, None

    def _submit_async_write(self, pending: PendingSave) -> None:
        """In each worker, between two passes: copy the rows and hand them to the writer.

        With tensor parallelism every rank has the same rows; the one that a request belongs to copies them, and is the one that
        tells the scheduler that its blocks are free.
        """
        if owner(pending.filename, self._ranks) != self._rank:
            return
        copied: Any = None
        try:
            copied = self._capture(pending.filename, pending.token_ids, pending.block_ids)
        except Exception:  # noqa: BLE001 - the engine goes on, the extraction must hear of it
            traceback.print_exc()
            with suppress(OSError):
                report_failure(self._setting.directory, self._rank, traceback.format_exc())
        self._req_copy_events[pending.req_id] = copied or _Copied()

    def _capture(self, rid: str, input_ids: torch.Tensor, block_ids: list[int]) -> torch.cuda.Event | None:
        assert self._writer is not None, "register_kv_caches comes first"
        assert self._norm is not None
        count, size, cache = len(input_ids), self._block_size, self._cache()
        slots = (torch.tensor(block_ids).unsqueeze(1) * size + torch.arange(size)).flatten()[:count]
        if len(slots) < count:
            raise RuntimeError(f"{rid}: {len(block_ids)} blocks of {size} for {count} tokens")
        states = extract_from_kv_cache(cache, slots.to(cache.device), count)
        hidden, final = states[:, :-1], self._norm(states[:, -1])
        self._writer.reserve(host_bytes(hidden) + host_bytes(final), lambda: 0)
        rows = rows_on_host(0, hidden, final, input_ids)
        self._writer.put(rid, [rows])
        return rows.copied

    def _cache(self) -> torch.Tensor:
        """[blocks, states a token, tokens a block, hidden]."""
        assert self._kv_cache is not None, "register_kv_caches comes first"
        return self._kv_cache
