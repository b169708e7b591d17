"""A running inference server's own metrics: rates from differences of its counters.

SGLang 0.5.23 (`srt/observability/metrics_collector.py`): `realtime_tokens_total{mode}` moves with every iteration;
`generation_tokens_total`, `num_requests_total` and `spec_verify_calls_total` move when a request finishes.
"""

import http.client
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from remote.protocol.telemetry import EngineSample
from remote.telemetry.rates import CounterRates

_TIMEOUT_S = 0.6
_RUNNING = "sglang:num_running_reqs"
_QUEUED = "sglang:num_queue_reqs"
_CACHE_USAGE = "sglang:token_usage"
_REALTIME = "sglang:realtime_tokens_total"
_GENERATED = "sglang:generation_tokens_total"
_REQUESTS = "sglang:num_requests_total"
_VERIFIED = "sglang:spec_verify_calls_total"
_WANTED = (_RUNNING, _QUEUED, _CACHE_USAGE, _REALTIME, _GENERATED, _REQUESTS, _VERIFIED)


class EngineEndpoint(NamedTuple):
    """A server that a job of this host runs: `engine` is its kind ("sglang"), `url` a loopback address."""

    job_id: str
    engine: str
    url: str


class EngineMetrics(NamedTuple):
    """What one scrape says; None for what the server does not tell. Tokens and calls are cumulative.

    `verified_tokens` are those of finished requests without the first of each, which prefill gives and not a verification.
    """

    running: float | None
    queued: float | None
    cache_usage: float | None
    prefill_tokens: float | None
    decode_tokens: float | None
    verified_tokens: float | None
    verify_calls: float | None


def parse_sglang(text: str) -> EngineMetrics:
    """The metrics in a Prometheus exposition of SGLang; raises ValueError when it is none.

    Ranks of tensor parallelism tell the same numbers, so only rank 0 counts; data-parallel ranks add up.
    """
    wanted = "\n".join(line for line in text.splitlines() if line.startswith(_WANTED)) + "\n"
    sums: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            if sample.labels.get("tp_rank", "0") == "0":
                key = (sample.name, sample.labels.get("mode", ""))
                sums[key] = sums.get(key, 0.0) + sample.value
    return EngineMetrics(
        running=sums.get((_RUNNING, "")),
        queued=sums.get((_QUEUED, "")),
        cache_usage=sums.get((_CACHE_USAGE, "")),
        prefill_tokens=sums.get((_REALTIME, "prefill_compute")),
        decode_tokens=sums.get((_REALTIME, "decode")),
        verified_tokens=_difference(sums.get((_GENERATED, "")), sums.get((_REQUESTS, ""))),
        verify_calls=sums.get((_VERIFIED, "")),
    )


class AcceptanceLength:
    """Tokens a verification over the requests that finished last; the bonus token is included."""

    def __init__(self) -> None:
        self._before: tuple[float, float] = (0.0, 0.0)
        self._value: float | None = None

    def advance(self, verified_tokens: float | None, verify_calls: float | None) -> float | None:
        """Take the counters of now; keeps the last known value while no request finishes, forgets it after a restart."""
        if verified_tokens is None or verify_calls is None:
            return self._value
        tokens, calls = verified_tokens - self._before[0], verify_calls - self._before[1]
        if tokens < 0 or calls < 0:
            tokens, calls, self._value = verified_tokens, verify_calls, None
        self._before = (verified_tokens, verify_calls)
        if calls > 0:
            self._value = tokens / calls
        return self._value


class _Watched:
    """What is remembered of one server between two readings."""

    def __init__(self) -> None:
        self.rates = CounterRates()
        self.acceptance = AcceptanceLength()

    def sample(self, endpoint: EngineEndpoint, metrics: EngineMetrics | None, at: float) -> EngineSample:
        """The reading as it travels; `at` by a monotonic clock."""
        found = metrics or EngineMetrics(None, None, None, None, None, None, None)
        rates = self.rates.advance(at, {"prefill": found.prefill_tokens, "decode": found.decode_tokens})
        return EngineSample(
            job_id=endpoint.job_id,
            engine=endpoint.engine,
            running_requests=_whole(found.running),
            queued_requests=_whole(found.queued),
            prefill_tokens_per_s=rates["prefill"],
            decode_tokens_per_s=rates["decode"],
            cache_usage=found.cache_usage,
            acceptance_length=self.acceptance.advance(found.verified_tokens, found.verify_calls),
        )


class EngineReader:
    """Reads every running server of the host."""

    def __init__(self, endpoints: Callable[[], list[EngineEndpoint]]) -> None:
        self._endpoints = endpoints
        self._watched: dict[str, _Watched] = {}

    def read(self) -> list[EngineSample]:
        """A reading of now; a server that does not answer has None throughout."""
        endpoints = self._endpoints()
        here = {endpoint.job_id for endpoint in endpoints}
        self._watched = {job_id: watched for job_id, watched in self._watched.items() if job_id in here}
        return [self._read_one(endpoint) for endpoint in endpoints]

    def _read_one(self, endpoint: EngineEndpoint) -> EngineSample:
        watched = self._watched.setdefault(endpoint.job_id, _Watched())
        metrics = scrape_sglang(endpoint.url) if endpoint.engine.startswith("sglang") else None
        return watched.sample(endpoint, metrics, time.monotonic())


def scrape_sglang(url: str) -> EngineMetrics | None:
    """Ask the server at `url` for its metrics; None when it does not answer in time or with none."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        if response.status != http.client.OK:
            return None
        return parse_sglang(response.read().decode("utf-8"))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
