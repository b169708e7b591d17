"""The vocabulary agent: built from a store, or copied with its coverage of that store."""

from pathlib import Path

import numpy as np
import pytest

from remote.agents.harness import JobContext
from remote.agents.vocabulary.worker import work
from remote.artifacts.hidden_states import Sample, StoreProperties
from remote.artifacts.mapping_validation import read_mapping
from remote.artifacts.store_writer import write_store
from remote.errors import Precondition
from remote.protocol.run import VocabularyConfig
from remote.protocol.specs import VocabularySpec

MODEL = Path(__file__).parents[1] / "fixtures/tiny_target/model"
VOCAB_SIZE = 512


@pytest.fixture
def store(tmp_path: Path) -> Path:
    properties = StoreProperties(
        model="m",
        layer_ids=[1],
        hidden_size=2,
        dtype="float32",
        final_norm="post_norm",
        target_config_sha256="c",
        tokenizer_sha256="t",
        chat_template_sha256="j",
        engine="sglang",
        engine_version="0.5.23",
    )
    ids = np.array([7] * 6 + [300] * 3 + [9], np.int64)
    states = np.ones((10, 1, 2), np.float32)
    made = [Sample("s", ids, np.ones(10, np.bool_), states, states[:, 0])]
    write_store(tmp_path / "store", properties, made, 1 << 20, fingerprint="f", inputs={})
    return tmp_path / "store"


@pytest.fixture
def job(tmp_path: Path) -> JobContext:
    (tmp_path / "job-1").mkdir()
    return JobContext(tmp_path / "job-1", tmp_path)


def spec_of(store: Path, name: str, **vocabulary: object) -> VocabularySpec:
    return VocabularySpec(
        store=str(store),
        target_model=str(MODEL),
        mapping=str(store.parent / name),
        vocabulary=VocabularyConfig(**vocabulary),
        fingerprint="f",
    )


def test_the_most_frequent_answer_tokens_are_chosen(store: Path, job: JobContext) -> None:
    result = work(spec_of(store, "mapping", draft_vocab_size=2), job)
    mapping = read_mapping(store.parent / "mapping")
    assert mapping.target_ids.tolist() == [7, 300]
    assert len(mapping.t2d) == VOCAB_SIZE
    assert result.summary["coverage"] == pytest.approx(0.9)


def test_a_copied_mapping_has_its_coverage_of_this_store(store: Path, job: JobContext) -> None:
    work(spec_of(store, "mapping", draft_vocab_size=2), job)
    source = str(store.parent / "mapping")
    result = work(spec_of(store, "copy", draft_vocab_size=2, source=source, minimum_coverage=0.9), job)
    assert result.summary["coverage"] == pytest.approx(0.9)
    with pytest.raises(Precondition, match=r"covers 90% of .* asks for 95%"):
        work(spec_of(store, "other", draft_vocab_size=2, source=source, minimum_coverage=0.95), job)
    assert not (store.parent / "other").exists()


def test_a_mapping_of_another_size_is_refused(store: Path, job: JobContext) -> None:
    work(spec_of(store, "mapping", draft_vocab_size=2), job)
    with pytest.raises(Precondition, match="2 draft tokens"):
        work(spec_of(store, "copy", draft_vocab_size=3, source=str(store.parent / "mapping")), job)
    golden = Path(__file__).parents[1] / "golden/kimi-k2.5-vocabulary"
    with pytest.raises(Precondition, match="163840 tokens"):
        work(spec_of(store, "copy", draft_vocab_size=32_000, source=str(golden)), job)
