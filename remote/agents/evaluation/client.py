"""One greedy completion from a running SGLang server, timed as its client sees it."""

import json
import time
from typing import Any, NamedTuple

import httpx

from remote.errors import WorkFailed

_TIMEOUT_S = 600.0


class Completion(NamedTuple):
    """Output ids and text, seconds to the first token and to the end, and verification calls (None without a drafter)."""

    output_ids: list[int]
    text: str
    time_to_first_token_s: float
    end_to_end_s: float
    verify_calls: int | None


class EngineClient:
    """A client of the server at `url`."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def server_info(self) -> dict[str, Any]:
        """What the server says of itself (`/server_info`)."""
        response = self._http.get("/server_info")
        response.raise_for_status()
        return response.json()

    def complete(self, input_ids: list[int], max_tokens: int) -> Completion:
        """Continue `input_ids` greedily; the end-of-sequence token ends it. Raises WorkFailed."""
        body = {"input_ids": input_ids, "sampling_params": _greedy(max_tokens), "stream": True}
        started = time.perf_counter()
        first = last = 0.0
        final: dict[str, Any] | None = None
        try:
            with self._http.stream("POST", "/generate", json=body) as response:
                if response.status_code != httpx.codes.OK:
                    raise WorkFailed(f"the server refused a prompt: {response.status_code} {response.read()[:300]!r}")
                for line in response.iter_lines():
                    if not line.startswith("data: ") or line == "data: [DONE]":
                        continue
                    last = time.perf_counter()
                    first = first or last
                    final = json.loads(line[len("data: ") :])
        except httpx.HTTPError as error:
            raise WorkFailed(f"the server did not finish a prompt: {error!r}", hint="see the server's log") from error
        if final is None or "output_ids" not in final:
            raise WorkFailed(
                f"the server answered a prompt without tokens: {str(final)[:300]}", hint="see the server's log"
            )
        return Completion(
            output_ids=final["output_ids"],
            text=final["text"],
            time_to_first_token_s=first - started,
            end_to_end_s=last - started,
            verify_calls=final["meta_info"].get("spec_verify_ct"),
        )

    def top_two_gap(self, input_ids: list[int]) -> float:
        """The gap between the two most likely next tokens, in logits (equal to that in log-probabilities)."""
        body = {
            "input_ids": input_ids,
            "sampling_params": _greedy(1),
            "return_logprob": True,
            "top_logprobs_num": 2,
            "logprob_start_len": len(input_ids) - 1,
        }
        response = self._http.post("/generate", json=body)
        response.raise_for_status()
        top = response.json()["meta_info"]["output_top_logprobs"][0]
        return float(top[0][0] - top[1][0])


def _greedy(max_tokens: int) -> dict[str, float | int]:
    return {"temperature": 0, "max_new_tokens": max_tokens}
