"""A benchmark's figures from its answers, and a whole one against a server that answers as an engine does."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.evaluation.benchmark import MOST_REQUESTS, Answer, Benchmark, Repeat, spread, summarise
from remote.agents.evaluation.client import Completion
from remote.agents.harness import JobContext, Stopped
from remote.artifacts.conversations import Prompt
from remote.artifacts.manifest import verify
from remote.errors import Precondition, WorkFailed
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.progress import BenchmarkAdvanced
from remote.protocol.run import BenchmarkConfig, EngineConfig
from remote.protocol.specs import BenchmarkSpec, ServerSpec
from tests.agents.played_server import ENGINES, playing
from tests.agents.test_extraction_worker import CONVERSATIONS, MODEL

FORGETTING = {
    "sglang": ENGINES["sglang"] | {"/flush_cache": {}},
    "vllm": ENGINES["vllm"] | {"/reset_prefix_cache": {}},
}


def answer(tokens: int, *, first: float = 0.5, end: float = 1.5, verify_calls: int | None = None) -> Answer:
    return Answer(Prompt("p", [], None), Completion(list(range(tokens)), "", first, end, verify_calls))


def benchmark(url: str, job: JobContext, file: str = str(CONVERSATIONS), **settings: object) -> Benchmark:
    spec = BenchmarkSpec(
        url=url,
        server_job_id="serving",
        server=ServerSpec(model=str(MODEL), engine=EngineConfig()),
        prompts=file,
        benchmark=msgspec.convert({"prompts": 2, "repeats": 2, "warmup_prompts": 1} | settings, BenchmarkConfig),
    )
    return Benchmark(spec, job)


@pytest.fixture
def job(tmp_path: Path) -> JobContext:
    (tmp_path / "job").mkdir()
    return JobContext(tmp_path / "job", tmp_path)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_a_spread_is_what_numpy_calls_the_quartiles(values: list[float]) -> None:
    found = spread(values)
    assert [found.lower, found.median, found.upper] == pytest.approx(np.percentile(values, [25, 50, 75]).tolist())


def test_decoding_counts_neither_the_first_token_nor_the_time_before_it() -> None:
    level = summarise(1, [Repeat([answer(11)], seconds=2.0)])
    assert level.decode_tokens_per_s.median == 10.0
    assert level.output_tokens_per_s.median == 5.5


def test_an_answer_of_one_token_has_no_decoding_rate_and_is_odd() -> None:
    level = summarise(1, [Repeat([answer(1, end=0.5), answer(21)], seconds=1.0)])
    assert level.decode_tokens_per_s.lower == level.decode_tokens_per_s.upper == 20.0
    assert (level.odd, len(level.requests)) == (1, 2)
    assert summarise(1, [Repeat([answer(1, end=0.5)] * 3, seconds=1.0)]).decode_tokens_per_s is None


def test_the_server_s_rate_is_over_repeats() -> None:
    repeats = [Repeat([answer(10), answer(10)], seconds=1.0), Repeat([answer(10), answer(10)], seconds=2.0)]
    assert summarise(2, repeats).output_tokens_per_s.median == 15.0


def test_acceptance_is_weighted_by_verifications_and_leaves_out_the_token_of_the_prefill() -> None:
    repeats = [Repeat([answer(11, verify_calls=5), answer(101, verify_calls=100)], seconds=1.0)]
    assert summarise(1, repeats).acceptance_length == pytest.approx(110 / 105)
    assert summarise(1, [Repeat([answer(11)], seconds=1.0)]).acceptance_length is None


@pytest.mark.parametrize("engine", ENGINES)
def test_a_whole_one_writes_a_checked_report(engine: str, job: JobContext) -> None:
    with playing(FORGETTING[engine]) as server:
        result = benchmark(f"http://127.0.0.1:{server.server_port}", job, concurrency=[1, 2]).run()
    (reference,) = result.outputs
    verify(Path(reference.path))
    report = msgspec.json.decode((Path(reference.path) / "report.json").read_bytes(), type=BenchmarkReport)
    assert report.engine == engine
    assert [level.concurrency for level in report.levels] == [1, 2]
    assert [len(level.requests) for level in report.levels] == [4, 4]
    assert report.levels[0].acceptance_length == 2.0
    assert result.summary["acceptance_length"] == 2.0
    records = [json.loads(line) for line in (job.directory / "progress.jsonl").read_text().splitlines()]
    advanced = [
        msgspec.convert(one["event"], BenchmarkAdvanced)
        for one in records
        if one["event"]["type"] == "benchmark_advanced"
    ]
    assert [one.requests_done for one in advanced] == list(range(1, 9))
    assert {one.requests_total for one in advanced} == {8}


def test_no_repeat_profits_from_the_one_before(job: JobContext) -> None:
    with playing(FORGETTING["sglang"]) as server:
        benchmark(f"http://127.0.0.1:{server.server_port}", job).run()
        warm_up, first, second = (posts.split() for posts in " ".join(server.posted).split("/flush_cache"))
    assert (warm_up, first, second) == (["/generate"], ["/generate"] * 2, ["/generate"] * 2)


def test_a_stop_leaves_no_report(job: JobContext) -> None:
    job.stop_requested.set()
    with playing(FORGETTING["sglang"]) as server, pytest.raises(Stopped):
        benchmark(f"http://127.0.0.1:{server.server_port}", job).run()
    assert not (job.directory / "benchmark").exists()


def test_more_requests_than_a_report_can_hold_are_refused_before_the_first(job: JobContext) -> None:
    with pytest.raises(Precondition, match=rf"at most {MOST_REQUESTS}"):
        benchmark("http://127.0.0.1:9", job, repeats=100, concurrency=list(range(1, 22)))


def test_a_report_of_the_most_requests_fits_into_a_line() -> None:
    third = 100 / 3
    answers = [answer(4096, first=third, end=2 * third, verify_calls=4096)._replace(prompt=Prompt("", [], None))]
    (one,) = summarise(4096, [Repeat(answers, 1.0)]).requests
    assert len(msgspec.json.encode(one)) < 200
    assert 200 * MOST_REQUESTS < 1 << 20


def test_prompts_with_ids_that_no_report_can_hold_are_refused_before_the_first(job: JobContext) -> None:
    (job.root / "long.jsonl").write_text(json.dumps({"id": "x" * 300_000, "prompt": "y"}) + "\n")
    with pytest.raises(Precondition, match="are so long"):
        benchmark("http://127.0.0.1:9", job, file="long.jsonl", prompts=1, repeats=4)


def test_a_prompt_that_is_refused_is_named(job: JobContext) -> None:
    answers = {key: value for key, value in FORGETTING["sglang"].items() if key != "/generate"}
    with playing(answers) as server, pytest.raises(WorkFailed, match=r"^prompt '.*', of \d+ tokens: .*refused"):
        benchmark(f"http://127.0.0.1:{server.server_port}", job).run()


def test_prompts_lie_below_the_root_unless_they_are_named_from_the_top(job: JobContext) -> None:
    shutil.copy(CONVERSATIONS, job.root / "own.jsonl")
    spec = BenchmarkSpec(
        url="http://127.0.0.1:9",
        server_job_id="serving",
        server=ServerSpec(model=str(MODEL), engine=EngineConfig()),
        prompts="own.jsonl",
        benchmark=BenchmarkConfig(),
    )
    assert Benchmark(spec, job)
    (job.root / "own.jsonl").unlink()
    with pytest.raises(Precondition, match=r"own\.jsonl"):
        Benchmark(spec, job)
