"""`roost server`: to start one and to measure it."""

import json

import msgspec
import pytest
from protocol_samples import BENCHMARK_REPORT, JOB, SERVER

from console import operations_server
from console.cli.server_text import benchmark_lines
from console.link.engine_http import HttpReply
from console.state.units import UNKNOWN
from remote.protocol.jobs import Running
from remote.protocol.progress import ServerRestarting
from remote.protocol.requests import StartJob
from remote.protocol.specs import BenchmarkSpec


def test_a_dry_run_prints_the_command_and_says_what_is_wrong(played_host, roost) -> None:
    told = roost("server", "start", "embedded", "--drafter", "--dry-run")
    assert told.exit_code == 5
    assert "-m sglang.launch_server" in told.stdout
    assert "problem: there is no drafter" in told.stdout
    assert not any(isinstance(request, StartJob) for request in played_host.asked)


def test_a_server_with_problems_is_not_started(played_host, roost) -> None:
    told = roost("server", "start", "embedded", "--json")
    assert told.exit_code == 5
    assert json.loads(told.stdout)["error"]["code"] == "precondition"
    assert not any(isinstance(request, StartJob) for request in played_host.asked)


def test_figures_are_a_table_and_a_document(played_host, roost) -> None:
    told = roost("server", "figures", "benchmark-1")
    assert told.exit_code == 0
    assert "AT A TIME" in told.stdout
    assert "48.5 (44.0 to 51.0)" in told.stdout
    document = json.loads(roost("server", "figures", "benchmark-1", "--json").stdout)
    assert document["benchmark_report"]["levels"][0]["decode_tokens_per_s"]["median"] == 48.5


def test_a_rate_that_is_not_known_is_no_zero() -> None:
    level = msgspec.structs.replace(BENCHMARK_REPORT.levels[0], decode_tokens_per_s=None)
    row = benchmark_lines(msgspec.structs.replace(BENCHMARK_REPORT, levels=[level]))[5]
    assert row.split()[:2] == ["1", UNKNOWN]


def test_odd_answers_are_explained_and_their_absence_is_not() -> None:
    clean = msgspec.structs.replace(
        BENCHMARK_REPORT, levels=[msgspec.structs.replace(BENCHMARK_REPORT.levels[0], odd=0)]
    )
    assert any("flatter" in line for line in benchmark_lines(BENCHMARK_REPORT))
    assert not any("flatter" in line for line in benchmark_lines(clean))


@pytest.mark.parametrize(
    ("option", "value"), [("-c", "0"), ("--repeats", "0"), ("--max-tokens", "1"), ("--count", "0"), ("--warm-up", "-1")]
)
def test_what_cannot_be_measured_is_a_usage_error(played_host, roost, option: str, value: str) -> None:
    told = roost("server", "bench", "serving", "--prompts", "p.jsonl", option, value)
    assert told.exit_code == 2
    assert option.lstrip("-") in told.stderr or option in told.stderr


def test_a_job_that_is_no_server_cannot_be_measured(played_host, roost) -> None:
    played_host.jobs = [msgspec.structs.replace(JOB, state=Running(since=0.0, pid=1))]
    told = roost("server", "bench", JOB.job_id, "--prompts", "p.jsonl")
    assert told.exit_code == 5
    assert "is no server but a" in told.stderr


def test_a_server_whose_engine_died_is_not_measured_until_it_answers_again(played_host, roost) -> None:
    played_host.jobs = [
        msgspec.structs.replace(
            JOB, job_id="serving", agent="server", spec=SERVER, state=Running(since=0.0, pid=1), run_id=None
        )
    ]
    up = played_host.server_events[0]
    died = ServerRestarting(reason="signal 9", restart=1, most=3, pause_s=2.0)
    played_host.server_events = [up, died]
    told = roost("server", "bench", "serving", "--prompts", "p.jsonl")
    assert told.exit_code == 5
    assert "died and is launched again" in told.stderr
    played_host.server_events = [up, died, msgspec.structs.replace(up, url="http://127.0.0.1:30001", restarts=1)]
    assert roost("server", "bench", "serving", "--prompts", "p.jsonl").exit_code == 0
    (spec,) = [request.spec for request in played_host.asked if isinstance(request, StartJob)]
    assert spec.url == "http://127.0.0.1:30001"


def test_a_benchmark_says_which_server_it_measures_and_how(played_host, roost) -> None:
    played_host.jobs = [
        msgspec.structs.replace(
            JOB, job_id="serving", agent="server", spec=SERVER, state=Running(since=0.0, pid=1), run_id=None
        )
    ]
    told = roost("server", "bench", "serving", "--prompts", "p.jsonl", "-c", "1", "-c", "8", "--count", "5")
    assert told.exit_code == 0
    (spec,) = [request.spec for request in played_host.asked if isinstance(request, StartJob)]
    assert isinstance(spec, BenchmarkSpec)
    assert (spec.server, spec.url, spec.prompts) == (SERVER, "http://127.0.0.1:30000", "p.jsonl")
    assert (spec.benchmark.concurrency, spec.benchmark.prompts) == ([1, 8], 5)
    assert told.stdout.startswith("benchmark-")


@pytest.mark.parametrize("said", ['{"a": "\\ud800"}', "[" * 100_000, "no JSON", '{"a": 1}'])
def test_whatever_a_server_answers_is_one_document(
    played_host, roost, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    async def reply(*_: object, **__: object) -> HttpReply:
        return HttpReply(200, "application/json", said.encode())

    monkeypatch.setattr(operations_server, "request_server", reply)
    told = roost("server", "request", "serving", "/x", "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["reply"]["body"] == ({"a": 1} if said == '{"a": 1}' else said)
