"""What a benchmark of a running server brings."""

from remote.protocol.base import Message
from remote.protocol.specs import BenchmarkSpec

MOST_REQUESTS = 4000
"""Of one benchmark, so that its report goes into one line of the protocol."""


class Spread(Message, frozen=True, kw_only=True):
    """The median of several measurements with their quartiles."""

    median: float
    lower: float
    upper: float


class RequestFigures(Message, frozen=True, kw_only=True):
    """One answer; seconds from the moment that it was asked for. `verify_calls` is None without a drafter."""

    prompt_id: str
    repeat: int
    output_tokens: int
    time_to_first_token_s: float
    end_to_end_s: float
    verify_calls: int | None


class BenchmarkLevel(Message, frozen=True, kw_only=True):
    """What so many requests at a time brought.

    `decode_tokens_per_s` (the tokens after the first over the seconds after it; None where no answer has two), the time to the
    first token and the time to the last are over requests; `output_tokens_per_s`, all output tokens over the seconds of a repeat, is over repeats and of the
    whole server. Acceptance is weighted by verifications, the bonus token included. `odd` counts answers that are empty or
    repeat themselves.
    """

    concurrency: int
    requests: list[RequestFigures]
    decode_tokens_per_s: Spread | None
    output_tokens_per_s: Spread
    time_to_first_token_s: Spread
    end_to_end_s: Spread
    acceptance_length: float | None
    odd: int


class BenchmarkReport(Message, frozen=True, kw_only=True):
    """The figures of a server, with all that they depend on; `server_info` is what the engine says of itself, shortened."""

    spec: BenchmarkSpec
    measured_at: float
    host_name: str
    devices: list[str]
    engine: str
    engine_version: str
    server_info: dict[str, str]
    prompts: int
    prompts_sha256: str
    levels: list[BenchmarkLevel]
