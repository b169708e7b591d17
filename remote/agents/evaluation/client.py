"""One greedy completion from a running server, timed as its client sees it."""

import json
import time
from functools import cached_property
from typing import Any, NamedTuple

import httpx

from remote.agents.evaluation.dialects import SGLANG, VLLM, Dialect
from remote.errors import WorkFailed
from remote.protocol.run import EngineName

_TIMEOUT_S = 600.0
_IDLE_TIMEOUT_S = 10.0
"""After its last answer a server needs a moment to be idle, and only then it empties its cache."""


class Completion(NamedTuple):
    """Output ids and text, seconds to the first token and to the end, and verification calls (None without a drafter).

    `accepted_drafts[n]` counts the verifications that accepted n proposals; empty where that is not told.
    """

    output_ids: list[int]
    text: str
    time_to_first_token_s: float
    end_to_end_s: float
    verify_calls: int | None
    accepted_drafts: list[int] = []


class EngineClient:
    """A client of the server at `url`, whichever engine that is; several threads may ask at a time."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, limits=httpx.Limits(max_connections=None))

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    @property
    def engine(self) -> EngineName:
        """What serves; raises WorkFailed when it is no engine that is known here."""
        return self._dialect.engine

    def server_info(self) -> dict[str, Any]:
        """What the server says of itself, its `version` at least; raises WorkFailed."""
        return self._read("GET", self._dialect.info)

    def forget_prefixes(self) -> None:
        """Have every prompt read anew, whatever was asked before; raises WorkFailed where the server will not."""
        until = time.monotonic() + _IDLE_TIMEOUT_S
        while (response := self._ask("POST", self._dialect.forget)).status_code != httpx.codes.OK:
            if time.monotonic() > until:
                raise WorkFailed(
                    f"the server does not forget its prefixes: {response.status_code} {response.text[:300]!r}",
                    hint="if somebody else asks it, wait until they are done; else see the server's log",
                )
            time.sleep(0.1)  # no engine tells when it is idle

    def complete(self, input_ids: list[int], max_tokens: int) -> Completion:
        """Continue `input_ids` greedily; the end-of-sequence token ends it. Raises WorkFailed."""
        dialect = self._dialect
        request = dialect.completion(input_ids, max_tokens)
        started = time.perf_counter()
        first = last = 0.0
        events: list[dict[str, Any]] = []
        try:
            with self._http.stream("POST", request.path, json=request.body) as response:
                if response.status_code != httpx.codes.OK:
                    raise WorkFailed(f"the server refused a prompt: {response.status_code} {response.read()[:300]!r}")
                for line in response.iter_lines():
                    if not line.startswith("data: ") or line == "data: [DONE]":
                        continue
                    last = time.perf_counter()
                    first = first or last
                    events.append(json.loads(line[len("data: ") :]))
        except (httpx.HTTPError, ValueError) as error:
            raise WorkFailed(f"the server did not finish a prompt: {error!r}", hint="see the server's log") from error
        try:
            answer = dialect.read(events)
        except (LookupError, TypeError, AttributeError) as error:
            said = str(events[-1:])[:300]
            raise WorkFailed(f"the server answered without tokens: {said}", hint="see the server's log") from error
        return Completion(
            output_ids=answer.output_ids,
            text=answer.text,
            time_to_first_token_s=first - started,
            end_to_end_s=last - started,
            verify_calls=answer.verify_calls,
            accepted_drafts=answer.accepted_drafts,
        )

    def top_two_gap(self, input_ids: list[int]) -> float:
        """The gap between the two most likely next tokens, in logits (equal to that in log-probabilities); raises WorkFailed."""
        request = self._dialect.likeliest(input_ids)
        return self._dialect.gap(self._read("POST", request.path, request.body))

    def _read(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = self._ask(method, path, body)
        try:
            response.raise_for_status()
            return response.json()
        except (httpx.HTTPStatusError, ValueError) as error:
            said = f"{response.status_code} {response.text[:300]!r}"
            raise WorkFailed(f"the server answered {path} with {said}", hint="see the server's log") from error

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            return self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise WorkFailed(f"the server did not answer {path}: {error!r}", hint="see the server's log") from error

    @cached_property
    def _dialect(self) -> Dialect:
        """The one whose own address the server knows."""
        # vLLM first: it has SGLang's address as well, where its cache may be emptied.
        for dialect in (VLLM, SGLANG):
            try:
                if self._http.get(dialect.info).status_code == httpx.codes.OK:
                    return dialect
            except httpx.HTTPError as error:
                raise WorkFailed(f"the server does not answer: {error!r}", hint="see the server's log") from error
        raise WorkFailed(
            f"at {self._http.base_url} is neither SGLang nor vLLM", hint="serve the target with one of them"
        )
