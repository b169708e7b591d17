"""The client beside servers that answer as SGLang 0.5.23 and vLLM 0.32 did."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from remote.agents.evaluation.client import EngineClient
from remote.errors import WorkFailed

SGLANG_STREAM = [
    {"text": "A", "output_ids": [5], "meta_info": {"spec_verify_ct": 0}},
    {"text": "A b c", "output_ids": [5, 6, 7], "meta_info": {"spec_verify_ct": 1}},
]
VLLM_STREAM = [
    {"choices": [{"text": "A", "prompt_token_ids": [1, 2], "token_ids": [5]}]},
    {"choices": [{"text": " b c", "prompt_token_ids": None, "token_ids": [6, 7]}]},
    {
        "choices": [],
        "usage": {"completion_tokens": 3},
        "metrics": {"speculative_decoding": {"num_spec_steps": 1, "num_accepted_draft_tokens": 1}},
    },
]
VLLM_LIKELIEST = {"choices": [{"logprobs": {"top_logprobs": [{"x": -4.5, "y": -3.25}]}}]}
SGLANG_LIKELIEST = {"meta_info": {"output_top_logprobs": [[[-3.25, 43, None], [-4.5, 499, None]]]}}


class Server(http.server.ThreadingHTTPServer):
    """Knows the paths of `answers`; a list is streamed."""

    daemon_threads = True
    answers: dict[str, object]
    asked: list[dict[str, object]]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.server.asked.append(body)
            self.reply(body)

        def reply(self, body: dict[str, object] | None) -> None:
            known = self.server.answers.get(self.path)
            if isinstance(known, dict) and body is not None and "stream" in known:
                known = known["stream" if body.get("stream") else "whole"]
            events = known if isinstance(known, list) else None
            text = json.dumps(known)
            if events is not None:
                text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
            self.send_response(404 if known is None else 200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Server.Handler) as listening:
        listening.asked = []
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


ENGINES = {
    "sglang": {
        "/server_info": {"version": "0.5.23"},
        "/generate": {"stream": SGLANG_STREAM, "whole": SGLANG_LIKELIEST},
    },
    "vllm": {"/version": {"version": "0.32.0"}, "/v1/completions": {"stream": VLLM_STREAM, "whole": VLLM_LIKELIEST}},
}


@pytest.fixture(params=ENGINES)
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[EngineClient]:
    server.answers = ENGINES[request.param]
    client = EngineClient(f"http://127.0.0.1:{server.server_port}")
    yield client
    assert client.engine == request.param
    client.close()


def test_an_answer_is_the_same_from_either_engine(client: EngineClient):
    completion = client.complete([1, 2], 3)
    assert (completion.output_ids, completion.text, completion.verify_calls) == ([5, 6, 7], "A b c", 1)
    assert 0 < completion.time_to_first_token_s <= completion.end_to_end_s


def test_what_is_asked_is_greedy_and_goes_in_as_tokens(client: EngineClient, server: Server):
    client.complete([1, 2], 3)
    (body,) = server.asked
    flat = body | body.get("sampling_params", {})
    assert flat["temperature"] == 0
    assert [1, 2] in body.values()
    assert 3 in flat.values()


def test_the_gap_is_between_the_likeliest_two_in_their_order(client: EngineClient):
    assert client.top_two_gap([1, 2]) == 1.25


def test_either_engine_tells_its_version(client: EngineClient):
    assert client.server_info()["version"] in ("0.5.23", "0.32.0")


def test_an_answer_without_tokens_is_a_failure(server: Server):
    for answers in (
        {"/server_info": {}, "/generate": [{"error": {"message": "no"}}]},
        {"/version": {}, "/v1/completions": [{"error": {"message": "no"}}]},
        {"/version": {}, "/v1/completions": []},
    ):
        server.answers = answers
        client = EngineClient(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(WorkFailed, match="without tokens"):
            client.complete([1], 1)
        client.close()


def test_a_server_of_another_kind_is_named(server: Server):
    server.answers = {"/": {}}
    client = EngineClient(f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(WorkFailed, match="neither SGLang nor vLLM"):
        client.complete([1], 1)
    client.close()


def test_without_a_drafter_nothing_is_verified(server: Server):
    server.answers = {"/version": {}, "/v1/completions": VLLM_STREAM[:2]}
    client = EngineClient(f"http://127.0.0.1:{server.server_port}")
    assert client.complete([1], 3).verify_calls is None
    client.close()
