"""A server that answers as SGLang 0.5.23 and vLLM 0.32 did."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SGLANG_STREAM = [
    {"text": "A", "output_ids": [5], "meta_info": {"spec_verify_ct": 0}},
    {
        "text": "A b c",
        "output_ids": [5, 6, 7],
        "meta_info": {"spec_verify_ct": 1, "spec_correct_drafts_histogram": [0, 1, 0]},
    },
]
VLLM_STREAM = [
    {"choices": [{"text": "A", "prompt_token_ids": [1, 2], "token_ids": [5]}]},
    {"choices": [{"text": " b c", "prompt_token_ids": None, "token_ids": [6, 7]}]},
    {
        "choices": [],
        "usage": {"completion_tokens": 3},
        "metrics": {"speculative_decoding": {"num_spec_steps": 1, "acceptance_histogram": [0, 1, 0]}},
    },
]
VLLM_LIKELIEST = {"choices": [{"logprobs": {"top_logprobs": [{"x": -4.5, "y": -3.25}]}}]}
SGLANG_LIKELIEST = {"meta_info": {"output_top_logprobs": [[[-3.25, 43, None], [-4.5, 499, None]]]}}


class Server(http.server.ThreadingHTTPServer):
    """Knows the paths of `answers`; a list is streamed."""

    daemon_threads = True
    answers: dict[str, object]
    asked: list[dict[str, object]]
    posted: list[str]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
            self.server.posted.append(self.path)
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


@contextmanager
def playing(answers: dict[str, object]) -> Iterator[Server]:
    """One that knows the paths of `answers`."""
    with Server(("127.0.0.1", 0), Server.Handler) as listening:
        listening.answers = answers
        listening.asked = []
        listening.posted = []
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
    "vllm": {
        "/version": {"version": "0.32.0"},
        "/server_info": {"vllm_config": "model='/m'"},
        "/v1/completions": {"stream": VLLM_STREAM, "whole": VLLM_LIKELIEST},
    },
}
