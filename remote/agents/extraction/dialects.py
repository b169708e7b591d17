"""How each engine is asked to compute a prompt so that its states are captured, and what its answer says of the cache; pure."""

from collections.abc import Callable
from typing import Any, NamedTuple


class CaptureDialect(NamedTuple):
    """One engine's: `body` of a POST to `path` for (request id, token ids); `cached_tokens` of the answer, LookupError for another one."""

    path: str
    body: Callable[[str, list[int]], dict[str, Any]]
    cached_tokens: Callable[[dict[str, Any]], int]


def _ask_sglang(request_id: str, input_ids: list[int]) -> dict[str, Any]:
    parameters = {"max_new_tokens": 1, "temperature": 0}
    return {"rid": request_id, "input_ids": input_ids, "sampling_params": parameters}


def _ask_vllm(request_id: str, input_ids: list[int]) -> dict[str, Any]:
    transfer = {"roost_request": request_id}
    return {"prompt": input_ids, "max_tokens": 1, "temperature": 0, "kv_transfer_params": transfer}


def _cached_by_sglang(answer: dict[str, Any]) -> int:
    return answer["meta_info"]["cached_tokens"]


def _cached_by_vllm(answer: dict[str, Any]) -> int:
    """It says nothing where it has no cache; the connector refuses to be launched with one."""
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


DIALECTS = {
    "sglang": CaptureDialect("/generate", _ask_sglang, _cached_by_sglang),
    "vllm": CaptureDialect("/v1/completions", _ask_vllm, _cached_by_vllm),
}
"""By the engine's name in the capture's ready marker."""
