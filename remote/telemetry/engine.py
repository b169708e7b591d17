"""A running inference server's own metrics: rates from differences of its counters."""

import http.client
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from remote.protocol.telemetry import EngineSample
from remote.telemetry.engine_metrics import EngineMetrics, parse_sglang, parse_sglang_loads, parse_vllm
from remote.telemetry.rates import CounterRates

_TIMEOUT_S = 0.6
_METRICS, _LOADS = "/metrics", "/v1/loads?include=core,spec"
_NOTHING = EngineMetrics()


class EngineEndpoint(NamedTuple):
    """A server that a job of this host runs: `engine` is its kind ("sglang", "vllm"), `url` a loopback address."""

    job_id: str
    engine: str
    url: str


class Acceptance:
    """Tokens a verification over the requests that finished last, and the share of drafts in it; the bonus token is included."""

    def __init__(self) -> None:
        self.length: float | None = None
        self.rate: float | None = None
        self._before: tuple[float, float] = (0.0, 0.0)

    def advance(self, metrics: EngineMetrics) -> None:
        """Take the counters of now; the last known values stay while no request finishes and go with a restart."""
        if metrics.verified_tokens is None or metrics.verify_calls is None:
            if metrics.acceptance_length is not None:
                self.length = metrics.acceptance_length
            return
        tokens, calls = metrics.verified_tokens - self._before[0], metrics.verify_calls - self._before[1]
        if tokens < 0 or calls < 0:
            tokens, calls = metrics.verified_tokens, metrics.verify_calls
            self.length = self.rate = None
        self._before = (metrics.verified_tokens, metrics.verify_calls)
        if calls > 0 and tokens >= 0:
            self.length = tokens / calls
            per_call = metrics.drafts_per_call
            self.rate = None if per_call is None else min(1.0, max(0.0, (self.length - 1) / per_call))


class _Watched:
    """What is remembered of one server between two readings."""

    def __init__(self, endpoint: EngineEndpoint) -> None:
        self.endpoint = endpoint
        self.has_metrics = True
        self._rates = CounterRates()
        self._acceptance = Acceptance()
        self._counters: dict[str, float] = {}

    def sample(self, metrics: EngineMetrics | None, at: float) -> EngineSample:
        """The reading as it travels, `at` by a monotonic clock; None is a server that does not answer."""
        found = metrics or _NOTHING
        counters = found.counters
        if any(value < self._counters.get(name, 0.0) for name, value in counters.items()):
            self._rates = CounterRates()
        self._counters = counters or self._counters
        rates = self._rates.advance(at, {"prefill": found.prefill_tokens, "decode": found.decode_tokens})
        self._acceptance.advance(found)
        return EngineSample(
            job_id=self.endpoint.job_id,
            engine=self.endpoint.engine,
            running_requests=_whole(found.running),
            queued_requests=_whole(found.queued),
            prefill_tokens_per_s=rates["prefill"],
            decode_tokens_per_s=rates["decode"],
            cache_usage=found.cache_usage,
            acceptance_length=None if metrics is None else self._acceptance.length,
            acceptance_rate=None if metrics is None else self._acceptance.rate,
            is_answering=metrics is not None,
        )


class EngineReader:
    """Reads every running server of the host."""

    def __init__(self, endpoints: Callable[[], list[EngineEndpoint]]) -> None:
        self._endpoints = endpoints
        self._watched: dict[EngineEndpoint, _Watched] = {}

    def read(self) -> list[EngineSample]:
        """A reading of now; a server that does not answer has None throughout."""
        endpoints = self._endpoints()
        # A server that was started anew has another address, or at least fell silent in between.
        self._watched = {endpoint: self._watched.get(endpoint) or _Watched(endpoint) for endpoint in endpoints}
        return [watched.sample(_ask(watched), time.monotonic()) for watched in self._watched.values()]


def _ask(watched: _Watched) -> EngineMetrics | None:
    """What the server says; nothing of an engine of another kind, which is not asked."""
    engine, url = watched.endpoint.engine, watched.endpoint.url
    if engine.startswith("vllm"):
        return _metrics_of(url, _METRICS, parse_vllm)
    if not engine.startswith("sglang"):
        return _NOTHING
    if watched.has_metrics:
        answer = get(url, _METRICS)
        if answer is None or answer.status != http.client.NOT_FOUND:
            return _parsed(answer, parse_sglang)
        # Started without --enable-metrics, which does not change while it runs.
        watched.has_metrics = False
    return _metrics_of(url, _LOADS, parse_sglang_loads)


class Answer(NamedTuple):
    """An HTTP answer, whatever its status."""

    status: int
    text: str


def get(url: str, path: str) -> Answer | None:
    """Ask the server at `url` for `path`; None when it does not answer in time."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _metrics_of(url: str, path: str, parse: Callable[[str], EngineMetrics]) -> EngineMetrics | None:
    return _parsed(get(url, path), parse)


def _parsed(answer: Answer | None, parse: Callable[[str], EngineMetrics]) -> EngineMetrics | None:
    """What the answer says; an answer of another kind says nothing, and is one all the same."""
    if answer is None:
        return None
    if answer.status != http.client.OK:
        return _NOTHING
    try:
        return parse(answer.text)
    except ValueError:
        return _NOTHING


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
