"""What is known of a drafter is read from the run's artifacts; what is not there is not known."""

import json
from pathlib import Path

import numpy as np
import pytest

from remote.artifacts.manifest import Manifest, write_manifest
from remote.pipeline.config import load_run
from remote.pipeline.evidence import Evidence, read_evidence, read_provenance
from remote.pipeline.plan import draw_plan
from remote.pipeline.stages import Blueprint
from tests.pipeline.test_verdict import STEADY, level, report

BASELINE, DRAFTER = report("baseline", level(STEADY)), report("drafter", level(STEADY, acceptance=1.5))


@pytest.fixture
def blueprint(root: Path, python: str, document: str) -> Blueprint:
    return draw_plan(load_run(document, {}), root=root, python=python)[1]


def seal(directory: Path, *names: str, inputs: dict[str, str] | None = None, **properties: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(
        format="test",
        version=1,
        fingerprint="f",
        inputs=inputs or {},
        producer="test",
        created_at=0.0,
        files=[],
        properties=properties,
    )
    write_manifest(directory, manifest, names)


def fill(blueprint: Blueprint) -> None:
    layout = blueprint.layout
    layout.mapping.mkdir(parents=True)
    np.save(layout.mapping / "d2t.npy", np.zeros(32, np.int64))
    seal(layout.mapping, "d2t.npy", coverage=0.9)
    seal(layout.store, inputs={"conversations": "c" * 64}, layer_ids=[1, 2, 3], samples=3, tokens=100)
    config = {
        "draft_vocab_size": 32,
        "max_position_embeddings": 2048,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]},
    }
    layout.drafter.mkdir(parents=True)
    (layout.drafter / "config.json").write_text(json.dumps(config))
    (layout.drafter / "model.safetensors").write_bytes(b"weights")
    summary = {
        "steps": 4,
        "tokens": 250,
        "test_acceptance_length": 1.9,
        "test_acceptance_length_3": 1.8,
        "test_accuracy_0": 0.6,
    }
    seal(layout.drafter, "model.safetensors", summary=summary)
    seal(layout.baseline_report, inputs={"prompts": "e" * 64})


def test_everything_that_the_artifacts_say_is_known(blueprint: Blueprint) -> None:
    fill(blueprint)
    assert read_evidence(blueprint, BASELINE) == Evidence(
        proposals=3,
        coverage=0.9,
        evaluated_coverage=pytest.approx(32 / 65),
        draft_vocab_size=32,
        target_vocab_size=512,
        captured_layer_ids=[0, 1, 2],
        served_layer_ids=[0, 1, 2],
        positions=2048,
        served_context=None,
        window=64,
        conversations=3,
        tokens=100,
        steps=4,
        trained_tokens=250,
        simulated_acceptance=1.8,
        first_accuracy=0.6,
    )


def test_layers_are_counted_as_the_engine_counts_that_serves(root: Path, python: str, document: str) -> None:
    run = load_run(document, {"serving": '{ name = "vllm", context_length = 128 }'})
    blueprint = draw_plan(run, root=root, python=python)[1]
    fill(blueprint)
    path = blueprint.layout.drafter / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}))
    evidence = read_evidence(blueprint, BASELINE)
    assert (evidence.captured_layer_ids, evidence.served_layer_ids) == ([1, 2, 3], [1, 2, 3])
    assert evidence.served_context == 128


def test_of_a_run_without_artifacts_hardly_anything_is_known(blueprint: Blueprint) -> None:
    assert read_evidence(blueprint, BASELINE) == Evidence(proposals=3, target_vocab_size=512, window=64)


def test_provenance_has_hashes_where_there_are_artifacts_and_the_servers_commands(blueprint: Blueprint) -> None:
    bare = read_provenance(blueprint, [BASELINE, DRAFTER])
    assert (bare.drafter_sha256, bare.mapping_sha256, bare.train_sha256) == (None, None, None)
    fill(blueprint)
    known = read_provenance(blueprint, [BASELINE, DRAFTER])
    assert (known.train_sha256, known.evaluation_sha256) == ("c" * 64, "e" * 64)
    assert known.mapping_sha256
    assert known.drafter_sha256
    assert known.model_fingerprint
    baseline, drafter = known.servers
    assert "--speculative-draft-model-path" not in baseline.command
    assert known.drafter == drafter.command[drafter.command.index("--speculative-draft-model-path") + 1]
