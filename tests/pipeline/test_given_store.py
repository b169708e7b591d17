"""A run that is given a store learns from it where it lies, or says why it cannot."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.hidden_states import Sample, StoreProperties
from remote.artifacts.manifest import hash_file
from remote.artifacts.store_writer import write_store
from remote.errors import Precondition, UsageError
from remote.pipeline.extraction_plan import plan_extraction
from remote.pipeline.plan import plan_run
from remote.protocol.reports import RunPlan
from tests.pipeline.conftest import CONFIG
from tests.pipeline.test_runner import Bench, bench, kinds, skipped

__all__ = ["bench"]

TINY = Path(__file__).parents[1] / "fixtures/tiny_target/model"
LAYERS = [1, 2, 3]


@pytest.fixture
def given(root: Path) -> Path:
    """A store as an import makes it: of the root's target, with final states before the norm."""
    model = root / "models/target"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, model / name)
    template = ChatTemplate(model)
    properties = StoreProperties(
        model=str(model),
        layer_ids=LAYERS,
        hidden_size=CONFIG["hidden_size"],
        dtype="float32",
        final_norm="pre_norm",
        target_config_sha256=hash_file(model / "config.json"),
        tokenizer_sha256=template.tokenizer_sha256,
        chat_template_sha256=template.sha256,
        engine="speculators",
        engine_version="imported",
    )
    states = np.ones((4, 3, CONFIG["hidden_size"]), np.float32)
    sample = Sample("s", np.arange(4), np.ones(4, np.bool_), states, states[:, 0])
    write_store(root / "imported", properties, [sample], 1 << 20, fingerprint="i", inputs={"source": "/rows"})
    return root / "imported"


@pytest.fixture
def plan(root: Path, python: str, document: str) -> Callable[..., RunPlan]:
    def make(**changes: str) -> RunPlan:
        keys = {"extraction.source": "imported"} | {key.replace("__", "."): value for key, value in changes.items()}
        return plan_run(document, keys, root=root, python=python)

    return make


def test_a_run_learns_from_the_store_that_it_is_given_and_leaves_it_as_it_is(bench: Bench, given: Path) -> None:
    (bench.root / "conversations/train.jsonl").unlink()
    before = {path.name: hash_file(path) for path in given.iterdir()}
    job = bench.open()
    result = bench.conduct(job, extraction__source="imported")
    assert skipped(job) == {"server", "extraction"}
    assert kinds(job)["verdict"] == "done"
    assert [output.path for output in result.outputs if output.kind == "store"] == [str(given)]
    assert {path.name: hash_file(path) for path in given.iterdir()} == before
    assert not list(bench.root.glob("imported.*"))
    assert not (bench.root / "runs/trial/store").exists()
    again = bench.open()
    bench.conduct(again, extraction__source="imported")
    assert kinds(again)["training"] == "skipped"


def test_another_store_makes_what_is_learned_anew(given: Path, plan: Callable[..., RunPlan], root: Path) -> None:
    first = plan()
    assert first.problems == []
    assert first.facts["extraction.source"] == hash_file(given / "manifest.json")[:16]
    assert "data.train" not in first.facts
    manifest = json.loads((given / "manifest.json").read_bytes())
    (given / "manifest.json").write_text(json.dumps(manifest | {"fingerprint": "another"}))
    assert plan().fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (shutil.rmtree, "there is no finished store"),
        (
            lambda store: _change(store, layer_ids=[0, 2, 3]),
            r"holds layers \[0, 2, 3\], extraction.layer_ids names \[1, 2, 3\]",
        ),
        (lambda store: _change(store, hidden_size=32), "are 32 wide, those of the target 64"),
        (lambda store: _change(store, target_config_sha256="x"), "another config.json"),
        (lambda store: _change(store, tokenizer_sha256="x"), "another tokenizer"),
        (lambda store: _change(store, chat_template_sha256="x"), "another chat template"),
        (lambda store: _change(store, samples=0), "no samples"),
        (lambda store: (store / "shard-00000.safetensors").unlink(), "is damaged: .*missing"),
        (lambda store: (store / "manifest.json").write_text("{"), "cannot be read"),
    ],
)
def test_a_store_that_does_not_fit_is_a_problem_of_the_plan(
    break_it: Callable[[Path], object], said: str, given: Path, plan: Callable[..., RunPlan]
) -> None:
    break_it(given)
    (problem,) = plan().problems
    assert re.search(said, problem)


def _change(store: Path, **properties: object) -> None:
    manifest = json.loads((store / "manifest.json").read_bytes())
    manifest["properties"] |= properties
    (store / "manifest.json").write_text(json.dumps(manifest))


def test_a_flipped_bit_ends_the_run_before_anything_is_learned_and_the_store_stays(bench: Bench, given: Path) -> None:
    shard = given / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    job = bench.open()
    with pytest.raises(Precondition, match=r"cannot be learned from.*shard-00000"):
        bench.conduct(job, extraction__source="imported")
    assert "vocabulary" not in kinds(job)
    assert shard.read_bytes() == content


def test_there_is_no_extraction_to_plan(given: Path, root: Path, document: str) -> None:
    with pytest.raises(UsageError, match="extracts nothing"):
        plan_extraction(document, {"extraction.source": "imported"}, root=root)
