"""Mappings without a run: built from several sources, measured, converted, copied by relative paths."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from remote.agents.harness import JobContext
from remote.agents.vocabulary.worker import work
from remote.artifacts.chat_template import ChatTemplate, hash_tokenizer
from remote.artifacts.hidden_states import Sample, StoreProperties
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.artifacts.store_writer import write_store
from remote.artifacts.target_tokens import special_ids
from remote.artifacts.token_counts import read_counts
from remote.errors import Conflict, NotFound, Precondition, UsageError
from remote.protocol.mappings import (
    CoverageReport,
    MappingBuildSpec,
    MappingConvertSpec,
    MappingCoverageSpec,
    TokenSource,
)
from remote.protocol.run import VocabularyConfig
from remote.protocol.specs import MappingCopySpec, VocabularySpec

MODEL = Path(__file__).parents[1] / "fixtures/tiny_target/model"
VOCAB_SIZE = 512


@pytest.fixture
def root(tmp_path: Path) -> Path:
    properties = StoreProperties(
        model=str(MODEL),
        layer_ids=[1],
        hidden_size=2,
        dtype="float32",
        final_norm="post_norm",
        target_config_sha256="c",
        tokenizer_sha256=hash_tokenizer(MODEL),
        chat_template_sha256="j",
        engine="sglang",
        engine_version="0.5.23",
    )
    ids = np.array([7, 7, 7, 9, 7, 7, 7, 300, 300, 300], np.int64)
    states = np.ones((10, 1, 2), np.float32)
    made = [Sample("s", ids, np.ones(10, np.bool_), states, states[:, 0])]
    write_store(tmp_path / "store", properties, made, 1 << 20, fingerprint="f", inputs={})
    conversation = {
        "id": "c",
        "conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    }
    (tmp_path / "chats.jsonl").write_text(json.dumps(conversation) + "\n")
    return tmp_path


@pytest.fixture
def job(root: Path) -> JobContext:
    (root / "jobs/job-1").mkdir(parents=True)
    return JobContext(root / "jobs/job-1", root)


def build(*sources: TokenSource, **changes) -> MappingBuildSpec:
    wanted = {"draft_vocab_size": 2, "destination": "mappings/new", "counts": "mappings/counts", **changes}
    return MappingBuildSpec(sources=list(sources) or [TokenSource(path="store")], **wanted)


def measure(job: JobContext, **changes) -> CoverageReport:
    wanted = {"sources": [TokenSource(path="store")], "target_model": str(MODEL), **changes}
    result = work(MappingCoverageSpec(**wanted), job)
    return msgspec.json.decode((Path(result.outputs[0].path) / "coverage.json").read_bytes(), type=CoverageReport)


def test_a_mapping_is_built_once_and_its_counts_are_kept(root: Path, job: JobContext) -> None:
    first = work(build(), job)
    assert read_mapping(root / "mappings/new").target_ids.tolist() == [7, 300]
    counts, properties = read_counts(root / "mappings/counts")
    assert (counts[7], counts[300], counts[9]) == (6, 3, 1)
    assert properties.target_model == str(MODEL)
    assert first.summary["coverage"] == pytest.approx(0.9)
    assert work(build(), job).outputs == first.outputs
    with pytest.raises(Conflict, match="nothing was written"):
        work(build(draft_vocab_size=3), job)
    assert read_mapping(root / "mappings/new").target_ids.tolist() == [7, 300]
    assert sorted(path.name for path in (root / "mappings").iterdir()) == ["counts", "new"]


def test_counts_of_an_earlier_store_are_put_aside(root: Path, job: JobContext) -> None:
    def spec_of(size: int) -> VocabularySpec:
        return VocabularySpec(
            store=str(root / "store"),
            target_model=str(MODEL),
            mapping=str(root / f"mapping-{size}"),
            vocabulary=VocabularyConfig(draft_vocab_size=size),
            fingerprint="f",
            counts=str(root / "counts"),
        )

    first = work(spec_of(2), job)
    assert work(spec_of(3), job).outputs[1] == first.outputs[1]
    manifest = root / "store/manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    assert work(spec_of(4), job).outputs[1] != first.outputs[1]
    assert [read_counts(place)[0][7] for place in (root / "counts", *root.glob("counts.replaced-*"))] == [6, 6]


def test_sources_are_merged_with_weights_and_kept_counts_count_too(root: Path, job: JobContext) -> None:
    template = ChatTemplate(MODEL)
    ids, mask = template.tokenize([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    answer = [token for token, counts in zip(ids, mask, strict=True) if counts]
    chats = TokenSource(path="chats.jsonl", weight=100.0)
    work(build(TokenSource(path="store"), chats, target_model=str(MODEL)), job)
    counts, _ = read_counts(root / "mappings/counts")
    assert counts[7] == 6
    assert counts[answer[0]] == 100 * answer.count(answer[0])
    again = build(
        TokenSource(path="mappings/counts", weight=0.5), destination="mappings/half", counts="mappings/half-counts"
    )
    work(again, job)
    assert read_counts(root / "mappings/half-counts")[0][7] == 3.0
    assert np.array_equal(read_mapping(root / "mappings/half").d2t, read_mapping(root / "mappings/new").d2t)


def test_special_and_named_tokens_are_forced_in(root: Path, job: JobContext) -> None:
    special = special_ids(MODEL)
    work(build(draft_vocab_size=len(special) + 2, forced=[11], force_special=True), job)
    chosen = read_mapping(root / "mappings/new").target_ids.tolist()
    assert {*special, 11} <= set(chosen)
    with pytest.raises(UsageError, match="do not fit"):
        work(build(draft_vocab_size=1, forced=[1, 2], destination="a", counts="b"), job)


@pytest.mark.parametrize(
    ("source", "error"),
    [("nowhere", NotFound), ("chats.jsonl", UsageError), ("mappings/new", Precondition)],
)
def test_what_cannot_be_counted_is_refused_in_words(source: str, error, root: Path, job: JobContext) -> None:
    work(build(), job)
    named = {} if source == "chats.jsonl" else {"target_model": str(MODEL)}
    with pytest.raises(error):
        work(build(TokenSource(path=source), destination="a", counts="b", **named), job)
    assert not (root / "a").exists()


def test_another_tokenizers_ids_are_refused(root: Path, job: JobContext, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in MODEL.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "tokenizer.json").write_bytes((MODEL / "tokenizer.json").read_bytes() + b" ")
    with pytest.raises(Precondition, match="another tokenizer"):
        work(build(target_model=str(other)), job)


def test_coverage_says_what_a_reused_mapping_costs(root: Path, job: JobContext) -> None:
    work(build(), job)
    report = measure(job, mapping="mappings/new", proposals=3, missing=5)
    assert report.coverage == report.best_coverage == pytest.approx(0.9)
    assert [token.token_id for token in report.missing] == [9]
    assert report.missing[0].text is not None
    # 7, then 7 7 9 | 7 7 7 300 | 300 300: three verifications of at most three proposals and a token of the target's own
    assert report.acceptance_length_bound == pytest.approx(9 / 3)
    assert report.curve[-1].coverage == 1.0


def test_coverage_without_a_mapping_is_that_of_the_best(root: Path, job: JobContext) -> None:
    report = measure(job, draft_vocab_size=1, curve=[1, 2, 3], minimum_coverage=0.95)
    assert report.coverage == pytest.approx(0.6)
    assert [point.coverage for point in report.curve] == pytest.approx([0.6, 0.9, 1.0])
    (root / "jobs/job-2").mkdir()
    other = JobContext(root / "jobs/job-2", root)
    with pytest.raises(UsageError):
        measure(other)


def test_counts_alone_give_no_bound_on_acceptance(root: Path, job: JobContext) -> None:
    work(build(), job)
    report = measure(job, sources=[TokenSource(path="mappings/counts")], mapping="mappings/new")
    assert report.coverage == pytest.approx(0.9)
    assert report.acceptance_length_bound is None


def test_a_mapping_is_converted_and_copied_by_paths_below_the_root(root: Path, job: JobContext) -> None:
    work(build(), job)
    result = work(MappingConvertSpec(source="mappings/new", destination="out/sf", layout="specforge"), job)
    assert validate_mapping(root / "out/sf").layout == "specforge"
    assert result.summary["repaired"] is None
    np.save(root / "mappings/d2t.npy", np.load(root / "mappings/new/d2t.npy").astype(np.int32))
    np.save(root / "mappings/t2d.npy", np.load(root / "mappings/new/t2d.npy"))
    narrow = MappingConvertSpec(source="mappings/d2t.npy", destination="out/mended", layout="roost")
    assert work(narrow, job).summary["repaired"] == "dtype-int32"
    assert read_mapping(root / "out/mended").target_ids.tolist() == [7, 300]
    work(MappingCopySpec(source="mappings/new", destination="out/copy", origin="lab:/elsewhere"), job)
    manifest = json.loads((root / "out/copy/manifest.json").read_text())
    assert manifest["inputs"]["source"] == "lab:/elsewhere"


def test_what_came_from_another_host_is_tidied_away_once_it_has_its_place(root: Path, job: JobContext) -> None:
    work(build(destination="incoming/m"), job)
    work(MappingCopySpec(source="incoming/m", destination="mappings/own"), job)
    assert (root / "incoming/m").exists()
    work(MappingCopySpec(source="incoming/m", destination="mappings/copy", origin="lab:/m"), job)
    assert not (root / "incoming/m").exists()
    assert read_mapping(root / "mappings/copy").target_ids.tolist() == [7, 300]


def test_token_ids_of_a_data_file_are_counted_as_they_are(root: Path, job: JobContext) -> None:
    line = {"id": "ids", "input_ids": [3, 4, 4, 5], "loss_mask": [0, 1, 1, 1]}
    (root / "ids.jsonl").write_text(json.dumps(line) + "\n")
    report = measure(job, sources=[TokenSource(path="ids.jsonl")], draft_vocab_size=2)
    assert sum(source.tokens for source in report.sources) == 3


def test_conversations_are_read_with_the_template_variables_of_the_run(root: Path, job: JobContext) -> None:
    thinking = root / "thinking"
    shutil.copytree(MODEL, thinking)
    settings = json.loads((thinking / "tokenizer_config.json").read_text())
    words = "('bbbb' if message['role'] == 'assistant' and not thinking else '') + message['content']"
    changed = settings["chat_template"].replace("message['content']", words)
    (thinking / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": changed}))
    chats = TokenSource(path="chats.jsonl")
    for variables in ({"thinking": True}, {"thinking": False}):
        spec = build(
            chats,
            target_model=str(thinking),
            destination=f"mappings/{variables['thinking']}",
            counts=f"counts/{variables['thinking']}",
            chat_template_kwargs=variables,
        )
        work(spec, job)
        counts, properties = read_counts(root / spec.counts)
        ids, mask = ChatTemplate(thinking, variables).tokenize(
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        )
        assert np.array_equal(counts, np.bincount(np.array(ids)[np.array(mask)], minlength=VOCAB_SIZE))
        assert properties.chat_template_kwargs == variables
    assert counts.sum() > read_counts(root / "counts/True")[0].sum()
    with pytest.raises(Conflict, match="nothing was written"):
        work(msgspec.structs.replace(spec, chat_template_kwargs={"thinking": True}), job)
    with pytest.raises(UsageError, match="no conversations are read with thinking"):
        work(build(destination="a", counts="b", chat_template_kwargs={"thinking": True}), job)
