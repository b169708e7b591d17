"""The extraction against an engine that the test plays: what is believed, what is refused, what is resumed."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from remote.agents.extraction.worker import work
from remote.agents.harness import JobContext, Stopped
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.safetensors_file import Tensor, write_safetensors
from remote.errors import Precondition, RoostError, WorkFailed
from remote.protocol.run import ExtractionConfig
from remote.protocol.specs import Capture, ExtractionSpec

MODEL = Path(__file__).parents[1] / "fixtures/tiny_target/model"
CONVERSATIONS = Path(__file__).parents[1] / "fixtures/tiny_target/conversations/tiny_eval.jsonl"
LAYERS, HIDDEN = [1, 2, 3], 8

Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class Engine:
    """Answers `/generate` and leaves spool files as the capture plugin does."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.sent: list[list[int]] = []
        self.change: Change = lambda states: states
        self.cached = 0
        self.after: Callable[[int], None] = lambda count: None
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.sent.append(body["input_ids"])
                engine.leave(body["rid"], body["input_ids"])
                answer = json.dumps({"text": "", "meta_info": {"cached_tokens": engine.cached}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                engine.after(len(engine.sent))

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def ready(self, layer_ids: list[int]) -> None:
        marker = {"engine": "sglang", "engine_version": "0.5.23", "layer_ids": layer_ids, "pid": 1}
        (self.spool / "ready-rank0.json").write_text(json.dumps(marker))

    def leave(self, rid: str, ids: list[int]) -> None:
        values = np.random.default_rng(len(ids)).normal(1, 0.1, (len(ids), len(LAYERS) + 1, HIDDEN)).astype(np.float32)
        states = {"hidden_states": values[:, :-1], "final_hidden_states": values[:, -1], "input_ids": np.array(ids)}
        states = self.change(states)
        tensors = {
            "input_ids": Tensor("I64", states["input_ids"].shape, [states["input_ids"]]),
            "hidden_states": Tensor("F32", states["hidden_states"].shape, [states["hidden_states"]]),
            "final_hidden_states": Tensor("F32", states["final_hidden_states"].shape, [states["final_hidden_states"]]),
        }
        write_safetensors(self.spool / f"{rid}.safetensors", tensors, {})


@pytest.fixture
def engine(tmp_path: Path):
    spool = tmp_path / "spool"
    spool.mkdir()
    made = Engine(spool)
    made.ready(LAYERS)
    yield made
    made.server.shutdown()


@pytest.fixture
def job(tmp_path: Path) -> JobContext:
    (tmp_path / "job-1").mkdir()
    return JobContext(tmp_path / "job-1", tmp_path)


def spec_of(engine: Engine, tmp_path: Path, *, layer_ids: list[int] = LAYERS, concurrency: int = 4) -> ExtractionSpec:
    return ExtractionSpec(
        url=engine.url,
        capture=Capture(layer_ids=layer_ids, spool_directory=str(engine.spool)),
        target_model=str(MODEL),
        conversations=str(CONVERSATIONS),
        store=str(tmp_path / "store"),
        extraction=ExtractionConfig(layer_ids=layer_ids, concurrency=concurrency, shard_bytes=8000),
        max_length=64,
        fingerprint="f",
    )


def test_every_conversation_is_in_the_store_once(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    result = work(spec_of(engine, tmp_path), job)
    reader = StoreReader(tmp_path / "store")
    wanted = [json.loads(line)["id"] for line in CONVERSATIONS.read_text().splitlines()]
    assert sorted(reader.sample_ids) == sorted(wanted)
    assert result.summary["samples"] == len(wanted) == len(engine.sent)
    assert reader.properties.layer_ids == LAYERS
    sample = reader.sample(0)
    assert sample.loss_mask.any()
    assert not sample.loss_mask[0]
    assert [path.name for path in engine.spool.iterdir()] == ["ready-rank0.json"]


def _without_last_row(states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array[:-1] for name, array in states.items()}


def _with(name: str, value: float, row: int | slice | tuple[int, int]) -> Change:
    def change(states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        array = states[name].copy()
        array[row] = value
        return {**states, name: array}

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_without_last_row, "rows"),
        (_with("input_ids", 7, 0), "other tokens"),
        (_with("hidden_states", np.nan, 1), "not finite"),
        (_with("final_hidden_states", np.inf, 1), "not finite"),
        (_with("hidden_states", 0.0, 2), "all zero"),
        (_with("hidden_states", 0.0, (2, 1)), "all zero"),
    ],
)
def test_states_that_are_not_what_was_asked_for_are_refused(
    engine: Engine, job: JobContext, tmp_path: Path, change: Change, reason: str
) -> None:
    engine.change = change
    with pytest.raises(WorkFailed, match=reason):
        work(spec_of(engine, tmp_path), job)
    assert not (tmp_path / "store/manifest.json").exists()


def test_a_prefix_from_the_cache_is_refused(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    engine.cached = 3
    with pytest.raises(WorkFailed, match="3 tokens came from the prefix cache"):
        work(spec_of(engine, tmp_path), job)


def test_a_server_that_captures_other_layers_is_refused(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    with pytest.raises(Precondition, match=r"captures layers \[1, 2, 3\]"):
        work(spec_of(engine, tmp_path, layer_ids=[1, 2]), job)
    assert engine.sent == []


def test_a_plugin_that_failed_is_told_in_its_own_words(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    engine.leave = lambda rid, ids: (engine.spool / "error-rank0.json").write_text('{"error": "the disk is full"}')
    with pytest.raises(WorkFailed, match="the disk is full"):
        work(spec_of(engine, tmp_path), job)


def test_a_stopped_extraction_goes_on_where_it_stopped(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    engine.after = lambda count: job.stop_requested.set() if count == 9 else None
    with pytest.raises(Stopped):
        work(spec_of(engine, tmp_path, concurrency=1), job)
    first = len(engine.sent)
    assert first < 24
    with pytest.raises(RoostError):
        StoreReader(tmp_path / "store")
    job.stop_requested.clear()
    engine.after = lambda count: None
    work(spec_of(engine, tmp_path, concurrency=1), job)
    # The first conversation is sent again: its states say of what type and size the store is.
    assert len(engine.sent) <= 24 + 1
    assert len(StoreReader(tmp_path / "store")) == 24
