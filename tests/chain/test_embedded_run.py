"""The run of the demo: SmolLM2 on the embedded host, at the size that a newcomer sees. Minutes long."""

import shutil
from importlib.resources import files
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(2400)]

UNTRAINED_ACCEPTANCE = 1.02


@pytest.fixture(scope="module")
def verdict(new_roost, engine_python: Path):
    model = engine_python.parents[2] / "root/models/smollm2-135m-instruct"
    if not model.is_dir():
        pytest.fail(f"no sample model at {model}: run `make prepare`")
    roost = new_roost()
    (roost.root / "models/smollm2-135m-instruct").symlink_to(model)
    for name in ("smollm2_train.jsonl", "smollm2_eval.jsonl"):
        shutil.copy(str(files("console.embedded").joinpath("data", name)), roost.root / "conversations")
    code, document, narration = roost("run", "embedded", "--wait")
    assert code == 0, narration
    return document["run"]["verdict"]


def test_the_drafter_is_accepted_on_held_out_chat_prompts(verdict) -> None:
    assert verdict["prompts"] >= 20
    assert verdict["acceptance_length"] > 1.4 > UNTRAINED_ACCEPTANCE


def test_outputs_are_the_same_in_float32(verdict) -> None:
    assert verdict["dtype"] == "float32"
    assert verdict["real_divergences"] == 0
    assert verdict["identical_outputs"] + verdict["near_ties"] == verdict["prompts"]


def test_the_verdict_states_both_rates_whatever_they_are(verdict) -> None:
    assert verdict["baseline_tokens_per_s"] > 0
    assert verdict["drafter_tokens_per_s"] > 0
    assert verdict["decision"] in ("promote", "reject", "inconclusive")
    assert verdict["reasons"]
