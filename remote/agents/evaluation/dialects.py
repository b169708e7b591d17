"""How each engine is asked for a greedy completion and for the two likeliest next tokens, and what its answers say; pure."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from remote.protocol.run import EngineName


class Request(NamedTuple):
    """A POST request."""

    path: str
    body: dict[str, Any]


class Answer(NamedTuple):
    """Output ids and text, and how many verifications they took (None where the engine does not say, or has no drafter).

    `accepted_drafts[n]` counts the verifications that accepted n proposals; empty where that is not told.
    """

    output_ids: list[int]
    text: str
    verify_calls: int | None
    accepted_drafts: list[int]


class Dialect(NamedTuple):
    """One engine's. `info` is the path of what it says of itself, a POST to `forget` empties its cache of prefixes; `read` and `gap` raise LookupError for another answer.

    `completion` streams; `read` takes the decoded `data:` events of the stream in their order. `gap` is in log-probabilities.
    """

    engine: EngineName
    info: str
    forget: str
    completion: Callable[[list[int], int], Request]
    read: Callable[[Sequence[dict[str, Any]]], Answer]
    likeliest: Callable[[list[int]], Request]
    gap: Callable[[dict[str, Any]], float]


def _sglang_completion(input_ids: list[int], max_tokens: int) -> Request:
    parameters = {"temperature": 0, "max_new_tokens": max_tokens}
    return Request("/generate", {"input_ids": input_ids, "sampling_params": parameters, "stream": True})


def _read_sglang(events: Sequence[dict[str, Any]]) -> Answer:
    """Every event has all tokens so far."""
    last = events[-1]
    about = last["meta_info"]
    accepted = about.get("spec_correct_drafts_histogram") or []
    return Answer(last["output_ids"], last["text"], about.get("spec_verify_ct"), accepted)


def _sglang_likeliest(input_ids: list[int]) -> Request:
    return Request(
        "/generate",
        {
            "input_ids": input_ids,
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
            "return_logprob": True,
            "top_logprobs_num": 2,
            "logprob_start_len": len(input_ids) - 1,
        },
    )


def _sglang_gap(answer: dict[str, Any]) -> float:
    first, second = answer["meta_info"]["output_top_logprobs"][0][:2]
    return float(first[0] - second[0])


_GREEDY_VLLM = {
    "temperature": 0,
    # The model's generation_config.json would set it, which SGLang's /generate does not read.
    "repetition_penalty": 1.0,
}


def _vllm_completion(input_ids: list[int], max_tokens: int) -> Request:
    wanted = {"return_token_ids": True, "stream": True, "stream_options": {"include_usage": True}}
    return Request("/v1/completions", {"prompt": input_ids, "max_tokens": max_tokens, **_GREEDY_VLLM, **wanted})


def _read_vllm(events: Sequence[dict[str, Any]]) -> Answer:
    """Every event has the tokens since the one before it; the last one has the figures of the request and no choice."""
    choices = [event["choices"][0] for event in events if event["choices"]]
    ids = [token for choice in choices for token in choice["token_ids"] or ()]
    text = "".join(choice["text"] for choice in choices)
    speculative = (events[-1].get("metrics") or {}).get("speculative_decoding")
    if speculative is None:
        return Answer(ids, text, None, [])
    return Answer(ids, text, speculative["num_spec_steps"], speculative.get("acceptance_histogram") or [])


def _vllm_likeliest(input_ids: list[int]) -> Request:
    return Request("/v1/completions", {"prompt": input_ids, "max_tokens": 1, "logprobs": 2, **_GREEDY_VLLM})


def _vllm_gap(answer: dict[str, Any]) -> float:
    first, second = sorted(answer["choices"][0]["logprobs"]["top_logprobs"][0].values(), reverse=True)[:2]
    return float(first - second)


SGLANG = Dialect(
    "sglang", "/server_info", "/flush_cache", _sglang_completion, _read_sglang, _sglang_likeliest, _sglang_gap
)
VLLM = Dialect("vllm", "/version", "/reset_prefix_cache", _vllm_completion, _read_vllm, _vllm_likeliest, _vllm_gap)
