"""The extraction against an engine that the test plays: what is believed, what is refused, what is resumed."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import pytest

from remote.agents import room
from remote.agents.extraction import filling, worker
from remote.agents.extraction.worker import work
from remote.agents.harness import JobContext, Stopped
from remote.agents.room import Free
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.hidden_states import PRODUCER, StoreReader
from remote.artifacts.manifest import hash_file, read_manifest, verify
from remote.artifacts.quarantine import read_quarantine
from remote.artifacts.safetensors_stream import Tensor, write_safetensors
from remote.errors import Precondition, RoostError, WorkFailed
from remote.protocol.codec import decode_progress_record
from remote.protocol.progress import ExtractionAdvanced, ExtractionPlanned, Progress, SampleQuarantined
from remote.protocol.run import ExtractionConfig
from remote.protocol.specs import Capture, ExtractionSpec

MODEL = Path(__file__).parents[1] / "fixtures/tiny_target/model"
CONVERSATIONS = Path(__file__).parents[1] / "fixtures/tiny_target/conversations/tiny_eval.jsonl"
LAYERS, HIDDEN = [1, 2, 3], 8

Told = TypeVar("Told", bound=Progress)
Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class Engine:
    """Answers `/generate` and leaves spool files as the capture plugin does."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.sent: list[list[int]] = []
        self.change: Change = lambda states: states
        self.cached = 0
        self.after: Callable[[int], None] = lambda count: None
        self.before: Callable[[list[int]], None] = lambda ids: None
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.sent.append(body["input_ids"])
                engine.before(body["input_ids"])
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
    (tmp_path / "error").write_text('{"error": "the disk is full"}')
    (tmp_path / "error").rename(engine.spool / "error-rank0.json")
    engine.leave = lambda rid, ids: None
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
    # What had not its turn yet is sent again.
    assert len(engine.sent) <= 24 + 2
    assert len(StoreReader(tmp_path / "store")) == 24


def _told(job: JobContext, kind: type[Told]) -> list[Told]:
    lines = (job.directory / "progress.jsonl").read_bytes().splitlines()
    return [event for line in lines if isinstance(event := decode_progress_record(line).event, kind)]


def _poison(engine: Engine, poisoned: Callable[[list[int]], bool]) -> None:
    """Whatever is `poisoned` by its tokens comes back with a row that is not finite."""
    leave = engine.leave

    def leave_poisoned(rid: str, ids: list[int]) -> None:
        engine.change = _with("hidden_states", np.nan, 1) if poisoned(ids) else lambda states: states
        leave(rid, ids)

    engine.leave = leave_poisoned


def test_a_poisoned_sample_is_quarantined_with_its_reason(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    spec = spec_of(engine, tmp_path, concurrency=1)
    work(spec, job)
    whole = [item.input_ids.tolist() for item in StoreReader(tmp_path / "store")]
    unfit_id = StoreReader(tmp_path / "store").sample_ids[7]
    (tmp_path / "job-2").mkdir()
    second = JobContext(tmp_path / "job-2", tmp_path)
    _poison(engine, lambda ids: ids == whole[7])
    engine.sent.clear()
    result = work(msgspec.structs.replace(spec, store=str(tmp_path / "second")), second)
    reader = StoreReader(tmp_path / "second")
    assert [item.input_ids.tolist() for item in reader] == whole[:7] + whole[8:]
    assert engine.sent.count(whole[7]) == spec.extraction.attempts
    assert result.summary["quarantined"] == reader.properties.quarantined == 1
    assert _told(second, ExtractionAdvanced)[-1].quarantined == 1
    (told,) = _told(second, SampleQuarantined)
    (kept,) = read_quarantine(tmp_path / "second")
    assert told.sample_id == kept.sample_id == unfit_id
    assert "not finite (3 attempts)" in kept.reason == told.reason
    verify(tmp_path / "second")


def test_more_poison_than_is_allowed_ends_the_extraction(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    _poison(engine, lambda ids: len(engine.sent) > 20)
    with pytest.raises(WorkFailed, match="quarantined already, more than 1 are not allowed"):
        work(spec_of(engine, tmp_path, concurrency=1), job)


def test_an_answer_that_was_bad_once_is_asked_for_again(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    _poison(engine, lambda ids: len(engine.sent) == 5)
    assert work(spec_of(engine, tmp_path, concurrency=1), job).summary["quarantined"] == 0
    assert len(engine.sent) == 25


def test_a_store_is_the_same_whatever_the_concurrency(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    content: list[dict[str, bytes]] = []
    for concurrency in (1, 7):
        spec = spec_of(engine, tmp_path, concurrency=concurrency)
        place = tmp_path / f"store-{concurrency}"
        work(msgspec.structs.replace(spec, store=str(place)), job)
        content.append({path.name: path.read_bytes() for path in place.iterdir() if path.name != "manifest.json"})
    assert content[0] == content[1]
    assert len(content[0]) > 3


def test_a_slow_sample_keeps_nobody_else_waiting_and_no_more_are_under_way_than_allowed(
    engine: Engine, job: JobContext, tmp_path: Path
) -> None:
    concurrency = 3
    all_at_once, others, lock = threading.Barrier(concurrency), threading.Semaphore(0), threading.Lock()
    begun, under_way, most = 0, 0, 0

    def before(ids: list[int]) -> None:
        nonlocal begun, under_way, most
        with lock:
            begun += 1
            number, under_way = begun, under_way + 1
            most = max(most, under_way)
        if number <= concurrency:
            all_at_once.wait(timeout=60)
        if number == 1:  # answered only when others were, again and again
            assert all(others.acquire(timeout=60) for _ in range(concurrency))
        with lock:
            under_way -= 1
        others.release()

    engine.before = before
    work(spec_of(engine, tmp_path, concurrency=concurrency), job)
    assert most == concurrency
    assert len(StoreReader(tmp_path / "store")) == len(engine.sent)


def test_the_manifest_says_of_what_and_by_what_the_states_are(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    spec = spec_of(engine, tmp_path)
    variables = {"thinking": False}
    work(msgspec.structs.replace(spec, target_revision="3f2a", chat_template_kwargs=variables), job)
    manifest = read_manifest(tmp_path / "store")
    template = ChatTemplate(MODEL, variables)
    said = {name: manifest.properties[name] for name in manifest.properties if name not in ("samples", "tokens")}
    assert said == {
        "model": str(MODEL),
        "model_revision": "3f2a",
        "layer_ids": LAYERS,
        "layer_id_meaning": "hugging_face_hidden_states_index",
        "hidden_size": HIDDEN,
        "dtype": "float32",
        "final_norm": "post_norm",
        "target_config_sha256": hash_file(MODEL / "config.json"),
        "tokenizer_sha256": template.tokenizer_sha256,
        "chat_template_sha256": template.sha256,
        "engine": "sglang",
        "engine_version": "0.5.23",
        "quarantined": 0,
    }
    assert template.sha256 != ChatTemplate(MODEL).sha256
    assert manifest.producer == PRODUCER
    assert manifest.inputs == {"conversations": hash_file(CONVERSATIONS), "target": str(MODEL)}
    verify(tmp_path / "store")


def test_progress_says_samples_tokens_bytes_the_rate_and_what_is_left(
    engine: Engine, job: JobContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_PROGRESS_INTERVAL_S", 0.0)
    poison = 5
    engine.change = lambda states: _with("hidden_states", np.nan, 1)(states) if len(engine.sent) == poison else states
    spec = spec_of(engine, tmp_path, concurrency=1)
    work(
        msgspec.structs.replace(
            spec, extraction=msgspec.structs.replace(spec.extraction, attempts=1, quarantine_share=0.2)
        ),
        job,
    )
    told, reader = _told(job, ExtractionAdvanced), StoreReader(tmp_path / "store")
    assert [each.samples_done for each in told] == sorted(each.samples_done for each in told)
    for each in told:
        assert each.tokens_per_s > 0
        assert each.eta_s == pytest.approx((each.tokens_total - each.tokens_done) / each.tokens_per_s)
        assert each.bytes_written + each.bytes_pending <= each.bytes_total
    last = told[-1]
    assert last.samples_done == last.samples_total == len(reader)
    assert last.tokens_done == last.tokens_total == reader.properties.tokens
    assert last.bytes_written == sum(path.stat().st_size for path in (tmp_path / "store").glob("shard-*"))
    assert (last.quarantined, last.eta_s) == (1, 0.0)
    assert [(reason.reason, reason.samples) for reason in last.reasons] == [
        (read_quarantine(tmp_path / "store")[0].reason, 1)
    ]


def test_the_plan_is_told_before_the_first_byte_and_is_exact(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    work(spec_of(engine, tmp_path), job)
    (planned,) = _told(job, ExtractionPlanned)
    reader = StoreReader(tmp_path / "store")
    assert (planned.samples, planned.tokens) == (len(reader), reader.properties.tokens)
    assert planned.loss_tokens == sum(int(item.loss_mask.sum()) for item in reader)
    shards = sum(path.stat().st_size for path in (tmp_path / "store").glob("shard-*"))
    assert 0 <= planned.bytes_needed - shards < 1 << 17
    assert planned.shards == len(list((tmp_path / "store").glob("shard-*")))
    assert "⟦" in planned.sample_text
    assert "⟧" in planned.sample_text


def test_a_store_that_does_not_fit_is_refused_before_its_first_byte(
    engine: Engine, job: JobContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(engine, tmp_path)
    monkeypatch.setattr(filling, "free_at", lambda path: Free(100_000, None))
    with pytest.raises(Precondition, match=r"needs .* more, but the disk of .* has 97.7 KiB"):
        work(spec, job)
    monkeypatch.setattr(filling, "free_at", lambda path: Free(1 << 40, 5))
    with pytest.raises(Precondition, match="files more"):
        work(spec, job)
    assert not (tmp_path / "store").exists()


def test_what_is_to_stay_free_is_left_to_others_and_the_extraction_goes_on_when_there_is_more(
    engine: Engine, job: JobContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, has = 1 << 30, [1 << 40]
    monkeypatch.setattr(room, "free_at", lambda path: Free(has[0], None))
    monkeypatch.setattr(room, "POLL_S", 0.01)

    def fill(count: int) -> None:
        if count == 8:
            has[0] = kept + 100

    paused: list[str] = []

    def make_room() -> None:
        while not (record := job.directory / room.PAUSE_NAME).exists():
            time.sleep(0.01)
        paused.append(json.loads(record.read_bytes())["reason"])
        has[0] = 1 << 40

    engine.after = fill
    helper = threading.Thread(target=make_room, daemon=True)
    helper.start()
    spec = spec_of(engine, tmp_path)
    work(msgspec.structs.replace(spec, extraction=msgspec.structs.replace(spec.extraction, keep_free_bytes=kept)), job)
    helper.join(timeout=60)
    assert "1.0 GiB needed, 1.0 GiB free" in paused[0]
    assert not (job.directory / room.PAUSE_NAME).exists()
    assert len(StoreReader(tmp_path / "store")) == len(set(map(tuple, engine.sent))) == len(engine.sent)


def test_token_ids_and_other_formats_make_the_same_store(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in CONVERSATIONS.read_text().splitlines()][:6]
    template = ChatTemplate(MODEL)
    ids = [template.tokenize(line["conversations"]) for line in lines]
    speakers = {"user": "human", "assistant": "gpt", "system": "system"}
    formats = {
        "ours": lines,
        "openai": [{"id": line["id"], "messages": line["conversations"]} for line in lines],
        "sharegpt": [
            {
                "id": line["id"],
                "conversations": [{"from": speakers[t["role"]], "value": t["content"]} for t in line["conversations"]],
            }
            for line in lines
        ],
        "ids": [
            {"id": line["id"], "input_ids": made.input_ids, "loss_mask": [int(counts) for counts in made.loss_mask]}
            for line, made in zip(lines, ids, strict=True)
        ],
    }
    found: list[list[list[object]]] = []
    for name, content in formats.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
        spec = spec_of(engine, tmp_path)
        place = str(tmp_path / f"store-{name}")
        work(msgspec.structs.replace(spec, store=place, conversations=str(tmp_path / f"{name}.jsonl")), job)
        reader = StoreReader(Path(place))
        found.append([[s.sample_id, s.input_ids.tolist(), s.loss_mask.tolist()] for s in reader])
    assert all(other == found[0] for other in found[1:])
    assert len(found[0]) == 6


def test_a_token_that_the_target_does_not_know_is_never_sent(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    alien = [
        {"id": str(token), "input_ids": [5, 6, token, 7], "loss_mask": [0, 0, 1, 1]} for token in (511, 512, 1 << 63)
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in alien) + CONVERSATIONS.read_text())
    work(msgspec.structs.replace(spec_of(engine, tmp_path), conversations=str(data)), job)
    left_out = {entry.sample_id: entry.reason for entry in read_quarantine(tmp_path / "store")}
    assert left_out == {str(token): f"token {token}: the target has 512" for token in (512, 1 << 63)}
    assert max(map(max, engine.sent)) < 512
    last = _told(job, ExtractionAdvanced)[-1]
    assert (last.samples_done, last.tokens_done, last.quarantined) == (last.samples_total, last.tokens_total, 2)


def test_a_server_that_is_gone_is_told_with_all_that_it_was_asked_for(
    engine: Engine, job: JobContext, tmp_path: Path
) -> None:
    asked = threading.Barrier(4)

    def die(rid: str, ids: list[int]) -> None:
        asked.wait()
        raise ConnectionAbortedError

    engine.leave = die
    engine.server.handle_error = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue] - nothing to print
    with pytest.raises(WorkFailed, match="it was asked for ") as caught:
        work(spec_of(engine, tmp_path, concurrency=4), job)
    assert caught.value.info.message.count("tiny-") == 4


def test_what_is_cut_is_counted(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    work(msgspec.structs.replace(spec_of(engine, tmp_path), max_length=24), job)
    (planned,) = _told(job, ExtractionPlanned)
    assert planned.cut == sum(len(item.input_ids) == 24 for item in StoreReader(tmp_path / "store")) > 0
    assert planned.unfit == len(planned.unfit_samples) == len(read_quarantine(tmp_path / "store"))


def test_a_conversation_without_an_answer_is_put_on_record(engine: Engine, job: JobContext, tmp_path: Path) -> None:
    mute = {"id": "mute", "conversations": [{"role": "user", "content": "Hello?"}]}
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(mute) + "\n" + CONVERSATIONS.read_text())
    work(msgspec.structs.replace(spec_of(engine, tmp_path), conversations=str(data)), job)
    (left_out,) = read_quarantine(tmp_path / "store")
    assert left_out.sample_id == "mute"
    assert "no answer" in left_out.reason
