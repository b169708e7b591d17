"""SGLang's own metrics, as a real server gave them."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote.telemetry.engine import AcceptanceLength, EngineEndpoint, EngineReader, parse_sglang

GOLDEN = Path(__file__).resolve().parents[1] / "golden/telemetry"
FIRST = (GOLDEN / "sglang-0.5.23-first.txt").read_text()
SECOND = (GOLDEN / "sglang-0.5.23-second.txt").read_text()


class Server(http.server.ThreadingHTTPServer):
    """Answers /metrics with the text that it is given."""

    text = FIRST
    daemon_threads = True

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.server.text.encode() if self.path == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Server.Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


def reader_of(server: Server) -> EngineReader:
    endpoint = EngineEndpoint("serving-1", "sglang", f"http://127.0.0.1:{server.server_address[1]}")
    return EngineReader(lambda: [endpoint])


def test_a_recorded_scrape_is_read():
    metrics = parse_sglang(SECOND)
    assert metrics == (1, 0, 0, 30, 113, 86 - 3, 64)


def test_a_server_without_a_drafter_tells_no_verifications():
    lines = [line for line in FIRST.splitlines() if "spec_verify_calls" not in line]
    metrics = parse_sglang("\n".join(lines))
    assert metrics.verify_calls is None
    assert metrics.decode_tokens is not None


def test_ranks_of_one_replica_count_once_and_replicas_add_up():
    line = 'sglang:realtime_tokens_total{{mode="decode",tp_rank="{tp}",dp_rank="{dp}"}} {value}\n'
    text = "".join(line.format(tp=tp, dp=dp, value=100 + dp) for tp in range(4) for dp in range(2))
    assert parse_sglang(text).decode_tokens == 201


def test_what_is_no_exposition_is_refused():
    with pytest.raises(ValueError, match="Invalid value"):
        parse_sglang('sglang:token_usage{tp_rank="0" 1.0\n')


def test_rates_are_differences_between_two_readings(server: Server):
    reader = reader_of(server)
    (first,) = reader.read()
    assert first.decode_tokens_per_s is None
    assert first.acceptance_length == pytest.approx((38 - 2) / 29)
    server.text = SECOND
    (second,) = reader.read()
    assert second.decode_tokens_per_s is not None
    assert second.decode_tokens_per_s > 0
    assert (second.running_requests, second.queued_requests) == (1, 0)
    assert second.acceptance_length == pytest.approx((86 - 38 - 1) / (64 - 29))
    (idle,) = reader.read()
    assert idle.decode_tokens_per_s == 0
    assert idle.acceptance_length == second.acceptance_length


def test_a_server_that_started_anew_has_no_rate_for_a_moment(server: Server):
    server.text = SECOND
    reader = reader_of(server)
    reader.read()
    server.text = FIRST
    (again,) = reader.read()
    assert again.decode_tokens_per_s is None
    assert again.acceptance_length == pytest.approx((38 - 2) / 29)


def test_a_server_that_answers_nonsense_is_unknown(server: Server):
    server.text = ""
    (sample,) = reader_of(server).read()
    assert (sample.running_requests, sample.cache_usage, sample.acceptance_length) == (None, None, None)


def test_an_engine_of_another_kind_is_left_alone(server: Server):
    endpoint = EngineEndpoint("serving-1", "other", f"http://127.0.0.1:{server.server_address[1]}")
    (sample,) = EngineReader(lambda: [endpoint]).read()
    assert (sample.engine, sample.running_requests) == ("other", None)


def test_no_verification_is_no_acceptance():
    acceptance = AcceptanceLength()
    assert acceptance.advance(None, None) is None
    assert acceptance.advance(10, 0) is None
    assert acceptance.advance(20, 5) == 2.0
