"""The specs of a run's jobs fit together."""

from pathlib import Path

import pytest

from remote.pipeline import stages
from remote.pipeline.children import child_id
from remote.pipeline.config import load_run
from remote.pipeline.plan import draw_plan
from remote.pipeline.stages import Blueprint
from remote.protocol.ids import is_job_id


@pytest.fixture
def blueprint(root: Path, python: str, document: str) -> Blueprint:
    run = load_run(document, {"evaluation.attention_backend": "intel_amx", "engine.attention_backend": "torch_native"})
    return draw_plan(run, root=root, python=python)[1]


def test_what_is_captured_is_what_is_extracted(blueprint: Blueprint):
    server, extraction = stages.capture_server(blueprint), stages.extraction(blueprint, "http://127.0.0.1:1")
    assert server.capture == extraction.capture
    assert extraction.store == stages.vocabulary(blueprint).store == stages.training(blueprint).store
    assert server.drafter is None


def test_both_arms_differ_in_the_drafter_alone(blueprint: Blueprint):
    drafter, baseline = stages.evaluation_server(blueprint, "drafter"), stages.evaluation_server(blueprint, "baseline")
    assert drafter.engine == baseline.engine
    assert (drafter.engine.dtype, drafter.engine.attention_backend) == ("float32", "intel_amx")
    assert stages.capture_server(blueprint).engine.attention_backend == "torch_native"
    assert drafter.drafter is not None
    assert drafter.drafter.model == stages.training(blueprint).drafter
    assert baseline.drafter is None
    assert drafter.capture is None


def test_the_baseline_is_compared_with_the_drafter(blueprint: Blueprint):
    drafter, baseline = (stages.evaluation(blueprint, arm, "http://127.0.0.1:1") for arm in ("drafter", "baseline"))
    assert drafter.reference is None
    assert baseline.reference == drafter.report
    assert drafter.prompts == baseline.prompts
    assert drafter.fingerprint != baseline.fingerprint


def test_every_path_is_absolute(blueprint: Blueprint, root: Path):
    spec = stages.extraction(blueprint, "http://127.0.0.1:1")
    for path in (spec.store, spec.conversations, spec.target_model, spec.capture.spool_directory):
        assert Path(path).is_relative_to(root)


def test_a_run_elsewhere_keeps_everything_in_its_directory(root: Path, python: str, document: str, tmp_path: Path):
    run = load_run(document, {"directory": str(tmp_path / "volume/trial")})
    plan, blueprint = draw_plan(run, root=root, python=python)
    assert plan.directory == str(tmp_path / "volume/trial")
    assert all(path.is_relative_to(tmp_path / "volume/trial") for path in blueprint.layout)


@pytest.mark.parametrize("run_id", ["run-a-261201-101010-abcd", "r" * 64, "run-" + "x" * 40 + "-261201-101010-abcd"])
@pytest.mark.parametrize("name", ["server", "evaluation-baseline"])
def test_the_id_of_a_job_is_one_and_belongs_to_its_run(run_id, name):
    job_id = child_id(run_id, name)
    assert is_job_id(job_id)
    assert job_id.endswith(f"-{name}")
    assert child_id(run_id[:-1] + "e", name) != job_id


def test_another_engine_may_serve_than_captures(root: Path, python: str, document: str):
    settings = {
        "engine.attention_backend": "torch_native",
        "evaluation.attention_backend": "intel_amx",
        "serving": '{ name = "vllm", python = "vllm/python", device = "cpu", max_running_requests = 2 }',
    }
    blueprint = draw_plan(load_run(document, settings), root=root, python=python)[1]
    capture, drafter = stages.capture_server(blueprint).engine, stages.evaluation_server(blueprint, "drafter").engine
    assert (capture.name, capture.attention_backend, capture.python) == ("sglang", "torch_native", None)
    assert (drafter.name, drafter.python) == ("vllm", str(root / "vllm/python"))
    assert drafter == stages.evaluation_server(blueprint, "baseline").engine
    assert drafter.dtype == "float32"
    assert drafter.attention_backend is None, "the evaluation's is of the engine that captures"
    assert stages.evaluation(blueprint, "drafter", "http://127.0.0.1:1").evaluation.attention_backend is None


def test_the_report_names_the_backend_that_both_arms_are_served_with(root: Path, python: str, document: str):
    run = load_run(document, {"engine.attention_backend": "torch_native"})
    blueprint = draw_plan(run, root=root, python=python)[1]
    assert stages.evaluation(blueprint, "drafter", "http://127.0.0.1:1").evaluation.attention_backend == "torch_native"
