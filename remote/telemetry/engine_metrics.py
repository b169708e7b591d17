"""What servers say of themselves, as cumulative counters and present levels; pure.

SGLang 0.5.23 (`srt/observability/metrics_collector.py`): `realtime_tokens_total{mode}` moves with every iteration;
`generation_tokens_total`, `num_requests_total` and `spec_verify_calls_total` move when a request finishes.
vLLM 0.33 (`v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`): all of them move with every iteration.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families


class EngineMetrics(NamedTuple):
    """What one reading says; None for what the server does not tell. Tokens and calls are cumulative.

    `verified_tokens` are those that verifications gave, the bonus token of each included; `drafts_per_call` is how many are
    proposed to one. `acceptance_length` is given by servers that tell only a mean since they were started.
    """

    running: float | None = None
    queued: float | None = None
    cache_usage: float | None = None
    prefill_tokens: float | None = None
    decode_tokens: float | None = None
    verified_tokens: float | None = None
    verify_calls: float | None = None
    drafts_per_call: float | None = None
    acceptance_length: float | None = None

    @property
    def counters(self) -> dict[str, float]:
        """The counters that are known; when one falls, the server began anew."""
        named = {
            "prefill": self.prefill_tokens,
            "decode": self.decode_tokens,
            "verified": self.verified_tokens,
            "calls": self.verify_calls,
        }
        return {name: value for name, value in named.items() if value is not None}


class _Exposition:
    """The wanted samples of a Prometheus text by name and, where there is one, mode; levels and counters add up over replicas."""

    def __init__(self, text: str, wanted: re.Pattern[str]) -> None:
        self._sums: dict[tuple[str, str], float] = {}
        self._counts: dict[tuple[str, str], int] = {}
        for family in text_string_to_metric_families("\n".join(wanted.findall(text)) + "\n"):
            for sample in family.samples:
                # Ranks of tensor parallelism tell the same numbers.
                if sample.labels.get("tp_rank", "0") == "0":
                    key = (sample.name, sample.labels.get("mode", ""))
                    self._sums[key] = self._sums.get(key, 0.0) + sample.value
                    self._counts[key] = self._counts.get(key, 0) + 1

    def sum(self, name: str, mode: str = "") -> float | None:
        """Over all replicas."""
        return self._sums.get((name, mode))

    def mean(self, name: str) -> float | None:
        """Of all replicas: a share does not add up."""
        whole = self._sums.get((name, ""))
        return None if whole is None else whole / self._counts[name, ""]


def _lines_of(prefix: str, *names: str) -> re.Pattern[str]:
    """Finds the lines of these metrics: an exposition has thousands, and to parse a line costs as much as to find hundreds."""
    return re.compile(rf"^{prefix}:(?:{'|'.join(names)})[{{ ].*$", re.MULTILINE)


_SGLANG = _lines_of(
    "sglang",
    "num_running_reqs",
    "num_queue_reqs",
    "token_usage",
    "realtime_tokens_total",
    "generation_tokens_total",
    "num_requests_total",
    "spec_verify_calls_total",
    "spec_num_draft_tokens",
)
_VLLM = _lines_of(
    "vllm",
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens_total",
    "generation_tokens_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
)


def parse_sglang(text: str) -> EngineMetrics:
    """The metrics in a Prometheus exposition of SGLang; raises ValueError when it is none.

    The first token of a request is given by prefill and by no verification.
    """
    found = _Exposition(text, _SGLANG)
    drafted = found.mean("sglang:spec_num_draft_tokens")
    return EngineMetrics(
        running=found.sum("sglang:num_running_reqs"),
        queued=found.sum("sglang:num_queue_reqs"),
        cache_usage=found.mean("sglang:token_usage"),
        prefill_tokens=found.sum("sglang:realtime_tokens_total", "prefill_compute"),
        decode_tokens=found.sum("sglang:realtime_tokens_total", "decode"),
        verified_tokens=_difference(
            found.sum("sglang:generation_tokens_total"), found.sum("sglang:num_requests_total")
        ),
        verify_calls=found.sum("sglang:spec_verify_calls_total"),
        # The number counts the root of the draft tree, which is the token that is known already.
        drafts_per_call=None if not drafted or drafted <= 1 else drafted - 1,
    )


def parse_vllm(text: str) -> EngineMetrics:
    """The metrics in a Prometheus exposition of vLLM, all engines together; raises ValueError when it is none."""
    found = _Exposition(text, _VLLM)
    calls = found.sum("vllm:spec_decode_num_drafts_total")
    drafted = found.sum("vllm:spec_decode_num_draft_tokens_total")
    accepted = found.sum("vllm:spec_decode_num_accepted_tokens_total")
    return EngineMetrics(
        running=found.sum("vllm:num_requests_running"),
        queued=found.sum("vllm:num_requests_waiting"),
        cache_usage=found.mean("vllm:kv_cache_usage_perc"),
        prefill_tokens=found.sum("vllm:prompt_tokens_total"),
        decode_tokens=found.sum("vllm:generation_tokens_total"),
        verified_tokens=None if accepted is None or calls is None else accepted + calls,
        verify_calls=calls,
        drafts_per_call=None if not calls or not drafted else drafted / calls,
    )


class _Speculative(msgspec.Struct):
    accept_length: float | None = None


class _Load(msgspec.Struct):
    """One data-parallel rank."""

    num_running_reqs: float | None = None
    num_waiting_reqs: float | None = None
    token_usage: float | None = None
    total_prefill_uncached_tokens: float | None = None
    speculative: _Speculative | None = None


class _Loads(msgspec.Struct):
    loads: list[_Load]


def parse_sglang_loads(text: str) -> EngineMetrics:
    """What `/v1/loads?include=core,spec` of SGLang says (`srt/managers/load_snapshot.py`); raises ValueError when it is none.

    Without `--enable-metrics` its `gen_throughput` and `accept_rate` stay 0, so neither is read.
    """
    try:
        loads = msgspec.json.decode(text, type=_Loads).loads
    except msgspec.MsgspecError as error:
        raise ValueError(f"not SGLang's loads: {error}") from error
    return EngineMetrics(
        running=_sum(load.num_running_reqs for load in loads),
        queued=_sum(load.num_waiting_reqs for load in loads),
        cache_usage=_mean(load.token_usage for load in loads),
        prefill_tokens=_sum(load.total_prefill_uncached_tokens for load in loads),
        acceptance_length=_mean(load.speculative.accept_length for load in loads if load.speculative is not None),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
