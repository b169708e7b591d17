"""One server of a run by itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from remote.pipeline.serving import plan_server
from remote.protocol.reports import ServerPlan

Plan = Callable[..., ServerPlan]


@pytest.fixture
def plan(root: Path, python: str, document: str) -> Plan:
    def planned(*, drafter: bool = False, **overrides: str) -> ServerPlan:
        settings = {key.replace("__", "."): value for key, value in overrides.items()}
        return plan_server(document, settings, drafter=drafter, root=root, python=python)

    return planned


def test_it_is_the_server_that_the_evaluation_measures(plan: Plan, root: Path) -> None:
    found = plan(evaluation__dtype="float32", engine__dtype="bfloat16")
    assert found.problems == []
    assert found.run == "trial"
    assert found.spec.model == str(root / "models/target")
    assert found.command[found.command.index("--dtype") + 1] == "float32"
    assert found.spec.drafter is None


def test_without_a_drafter_there_it_says_so_and_shows_the_command_all_the_same(plan: Plan, root: Path) -> None:
    found = plan(drafter=True)
    assert found.problems == [
        f"there is no drafter at {root}/runs/trial/drafter. Run the training first, or serve without it."
    ]
    assert "--speculative-draft-model-path" in found.command
    (root / "runs/trial/drafter").mkdir(parents=True)
    (root / "runs/trial/drafter/config.json").write_text("{}")
    assert plan(drafter=True).problems == []


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("engine__flags__no-such-flag", "1", "no-such-flag"),
        ("engine__python", "/no/python", "cannot be run"),
        ("target__model", "models/absent", "config.json"),
        ("engine__environment__HF_TOKEN", "hf_x", "roost secrets set"),
    ],
)
def test_what_stands_in_the_way_is_named(plan: Plan, key: str, value: str, word: str) -> None:
    assert any(word in problem for problem in plan(**{key: value}).problems)


def test_flags_can_be_read_before_the_model_is_there(plan: Plan) -> None:
    found = plan(target__model="models/absent", engine__attention_backend="triton")
    assert "triton" in found.command
    assert any("config.json" in problem for problem in found.problems)


def test_a_run_that_serves_with_another_engine_gives_that_one(plan: Plan) -> None:
    found = plan(serving='{ name = "vllm", device = "cpu", flags = { no-such-flag = 1 } }')
    assert found.spec.engine.name == "vllm"
    assert [problem.split(":")[0] for problem in found.problems] == ["serving.flags"]
