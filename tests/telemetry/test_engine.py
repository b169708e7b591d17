"""Servers' own metrics: as real servers gave them, and vLLM's of several engines as its source defines them."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.telemetry.engine import Acceptance, EngineEndpoint, EngineReader, _Watched
from remote.telemetry.engine_metrics import EngineMetrics, parse_sglang, parse_sglang_loads, parse_vllm

GOLDEN = Path(__file__).resolve().parents[1] / "golden/telemetry"
FIRST = (GOLDEN / "sglang-0.5.23-first.txt").read_text()
SECOND = (GOLDEN / "sglang-0.5.23-second.txt").read_text()
LOADS = (GOLDEN / "sglang-0.5.23-loads.json").read_text()
VLLM_FIRST = (GOLDEN / "vllm-0.33-first.txt").read_text()
VLLM_SECOND = (GOLDEN / "vllm-0.33-second.txt").read_text()


class Server(http.server.ThreadingHTTPServer):
    """Answers /metrics and /v1/loads with the texts that it is given."""

    text = FIRST
    loads = ""
    asked: list[str]
    daemon_threads = True

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.server.asked.append(self.path)
            texts = {"/metrics": self.server.text, "/v1/loads": self.server.loads}
            body = texts.get(self.path.partition("?")[0], "").encode()
            self.send_response(200 if body else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

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


def reader_of(server: Server, engine: str = "sglang") -> EngineReader:
    endpoint = EngineEndpoint("serving-1", engine, f"http://127.0.0.1:{server.server_address[1]}")
    return EngineReader(lambda: [endpoint])


def test_a_recorded_scrape_is_read():
    metrics = parse_sglang(SECOND)
    assert metrics == (1, 0, 0, 30, 113, 86 - 3, 64, 2, None)


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
    acceptance = Acceptance()
    acceptance.advance(EngineMetrics())
    assert acceptance.length is None
    acceptance.advance(EngineMetrics(verified_tokens=10, verify_calls=0))
    assert acceptance.length is None
    acceptance.advance(EngineMetrics(verified_tokens=20, verify_calls=5, drafts_per_call=4))
    assert (acceptance.length, acceptance.rate) == (2.0, 0.25)


def test_the_share_of_accepted_drafts_is_that_of_the_same_requests(server: Server):
    reader = reader_of(server)
    reader.read()
    server.text = SECOND
    (second,) = reader.read()
    assert second.acceptance_length is not None
    assert second.acceptance_rate == pytest.approx((second.acceptance_length - 1) / 2)


def test_a_share_of_several_replicas_is_their_mean():
    line = 'sglang:token_usage{{tp_rank="0",dp_rank="{dp}"}} {value}\n'
    assert parse_sglang(line.format(dp=0, value=0.8) + line.format(dp=1, value=0.4)).cache_usage == pytest.approx(0.6)


def test_a_server_that_restarts_has_no_rate_even_where_another_counter_grew(server: Server):
    """Fewer tokens generated than before say that the prompt tokens are those of another life."""
    reader = reader_of(server, "vllm")
    server.text = VLLM_FIRST
    reader.read()
    server.text = VLLM_SECOND.replace("1400.0", "14.0").replace("1040.0", "10.0")
    (restarted,) = reader.read()
    assert (restarted.prefill_tokens_per_s, restarted.decode_tokens_per_s) == (None, None)
    (later,) = reader.read()
    assert later.prefill_tokens_per_s == 0


def test_vllm_engines_add_up(server: Server):
    server.text = VLLM_FIRST
    reader = reader_of(server, "vllm")
    (first,) = reader.read()
    assert (first.running_requests, first.queued_requests) == (5, 1)
    assert first.cache_usage == pytest.approx(0.2)
    assert first.decode_tokens_per_s is None
    assert first.acceptance_length == pytest.approx(1 + 860 / 900)
    server.text = VLLM_SECOND
    (second,) = reader.read()
    assert second.prefill_tokens_per_s is not None
    assert second.decode_tokens_per_s is not None
    assert second.decode_tokens_per_s / second.prefill_tokens_per_s == pytest.approx(640 / 300)
    assert second.acceptance_length == pytest.approx(1 + 340 / 300)
    assert second.acceptance_rate == pytest.approx(340 / 900)


def test_a_recorded_scrape_of_vllm_is_read():
    metrics = parse_vllm((GOLDEN / "vllm-0.32-second.txt").read_text())
    assert (metrics.running, metrics.queued, metrics.cache_usage) == (0, 0, 0)
    assert (metrics.prefill_tokens, metrics.decode_tokens) == (10, 128)
    assert (metrics.verified_tokens, metrics.verify_calls, metrics.drafts_per_call) == (80 + 48, 48, 3)


def test_what_vllm_said_between_two_requests_is_their_acceptance(server: Server):
    server.text = (GOLDEN / "vllm-0.32-first.txt").read_text()
    reader = reader_of(server, "vllm")
    reader.read()
    server.text = (GOLDEN / "vllm-0.32-second.txt").read_text()
    (second,) = reader.read()
    assert second.acceptance_length == pytest.approx(1 + 40 / 24)
    assert second.acceptance_rate == pytest.approx(40 / 72)


def test_vllm_without_a_drafter_has_no_acceptance():
    metrics = parse_vllm("\n".join(line for line in VLLM_FIRST.splitlines() if "spec_decode" not in line))
    assert (metrics.verified_tokens, metrics.verify_calls, metrics.drafts_per_call) == (None, None, None)
    assert metrics.decode_tokens == 1800


def test_a_server_without_metrics_tells_its_loads(server: Server):
    server.text, server.loads = "", LOADS
    reader = reader_of(server)
    reader.read()
    (sample,) = reader.read()
    assert (sample.running_requests, sample.queued_requests) == (8, 2)
    assert sample.cache_usage == pytest.approx(0.2)
    assert sample.acceptance_length == pytest.approx(2.5)
    assert (sample.decode_tokens_per_s, sample.acceptance_rate, sample.is_answering) == (None, None, True)
    assert sample.prefill_tokens_per_s == 0
    assert [path.partition("?")[0] for path in server.asked] == ["/metrics", "/v1/loads", "/v1/loads"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"loads": 3}', '{"loads": [{"num_running_reqs": "many"}]}', "no json"]
)
def test_what_is_no_list_of_loads_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        parse_sglang_loads(text)


def test_loads_that_say_nothing_tell_nothing():
    assert parse_sglang_loads('{"loads": [{"speculative": null, "new": 1}]}') == EngineMetrics()


def test_a_server_that_does_not_answer_is_told_so_and_has_no_rate_when_it_is_back(server: Server):
    server.text = SECOND
    here = EngineEndpoint("serving-1", "sglang", f"http://127.0.0.1:{server.server_address[1]}")
    reader = EngineReader(lambda: [here])
    (before,) = reader.read()
    assert before.is_answering
    watched = reader._watched[here]
    silent = watched.sample(None, 1e9)
    assert not silent.is_answering
    assert {silent.running_requests, silent.decode_tokens_per_s, silent.acceptance_length, silent.acceptance_rate} == {
        None
    }
    (back,) = reader.read()
    assert back.is_answering
    assert back.decode_tokens_per_s is None


def test_nobody_at_the_port_is_no_answer():
    with Server(("127.0.0.1", 0), Server.Handler) as closed:
        url = f"http://127.0.0.1:{closed.server_address[1]}"
    (sample,) = EngineReader(lambda: [EngineEndpoint("serving-1", "vllm", url)]).read()
    assert not sample.is_answering


@given(readings=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans()), max_size=30))
def test_no_series_of_counters_gives_a_negative_rate(readings: list[tuple[int, int, bool]]):
    watched = _Watched(EngineEndpoint("serving-1", "vllm", "http://127.0.0.1:1"))
    for second, (decoded, calls, answers) in enumerate(readings):
        metrics = EngineMetrics(
            decode_tokens=decoded, prefill_tokens=calls, verified_tokens=decoded, verify_calls=calls, drafts_per_call=3
        )
        sample = watched.sample(metrics if answers else None, float(second))
        for rate in (sample.decode_tokens_per_s, sample.prefill_tokens_per_s, sample.acceptance_length):
            assert rate is None or rate >= 0
        assert sample.acceptance_rate is None or 0 <= sample.acceptance_rate <= 1
