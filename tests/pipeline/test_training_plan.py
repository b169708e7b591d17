"""A training by itself: what it would be on a store and a mapping that are there."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remote.errors import UsageError
from remote.jobs import vault
from remote.pipeline.training_plan import plan_training
from remote.protocol.reports import TrainingPlan
from remote.protocol.requests import PlanTraining
from tests.agents.test_training_worker import Inputs, Run

Plan = Callable[..., TrainingPlan]


@pytest.fixture
def plan(root: Path, document: str) -> Plan:
    Inputs(root, samples=40)

    def make(
        *, output: str = "alone", store: str = "store", mapping: str = "mapping", **overrides: str
    ) -> TrainingPlan:
        settings = {name.replace("__", "."): value for name, value in overrides.items()}
        wanted = {"target.model": "target", "vocabulary.draft_vocab_size": "24", "training.sequence_length": "24"}
        request = PlanTraining(
            document=document, overrides=wanted | settings, store=store, mapping=mapping, output=output
        )
        return plan_training(request, root=root, python=sys.executable)

    return make


def test_it_begins_goes_on_and_is_done_as_what_lies_there_says(plan: Plan, root: Path):
    found = plan()
    assert found.problems == []
    assert (found.action, found.samples) == ("run", 40)
    assert found.bytes_needed is not None
    assert found.spec.store == str(root / "store")
    assert found.spec.drafter == str(root / "alone/drafter")
    assert Run(root / "job", found.spec).wait() == 0
    assert plan().action == "skip"
    assert plan(training__log_every="1").action == "skip", "that is a comfort"
    shutil.rmtree(found.spec.drafter)
    assert plan().action == "resume"
    assert plan().spec == found.spec


def test_another_training_never_writes_where_one_has_written(plan: Plan, root: Path):
    assert Run(root / "job", plan().spec).wait() == 0
    drafter, checkpoints = plan(training__learning_rate="0.002").problems
    assert "is the drafter of another training" in drafter
    assert "holds checkpoints of another training" in checkpoints
    assert plan(training__learning_rate="0.002", output="elsewhere").problems == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"store": "nowhere"}, "nowhere"),
        ({"mapping": "nowhere"}, "nowhere"),
        ({"target__model": "models/target"}, "it was extracted from another model"),
        ({"training__ranks": "2"}, "training.ranks is 2"),
        ({"training__device": "cuda"}, "GPU"),
    ],
)
def test_what_stands_in_the_way_is_said(plan: Plan, changes, said):
    (problem,) = plan(**changes).problems
    assert said in problem


def test_a_mapping_that_roost_did_not_make_is_converted_first(plan: Plan, root: Path):
    (root / "mapping/manifest.json").unlink()
    (problem,) = plan().problems
    assert "roost vocabulary convert" in problem


def test_the_drafter_that_it_begins_as_counts_by_its_content(plan: Plan, root: Path):
    (problem,) = plan(training__init_from="drafters/old").problems
    assert "there is no drafter in" in problem
    for name, weights in (("old", b"1"), ("same", b"1"), ("new", b"2")):
        place = root / "drafters" / name
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
        (place / "model.safetensors").write_bytes(weights)
    anew, *begun = [
        plan(**({"training__init_from": f"drafters/{name}"} if name else {})) for name in ("", "old", "same", "new")
    ]
    assert begun[0].spec.training.init_from == str(root / "drafters/old")
    old, same, new = (found.spec.fingerprint for found in begun)
    assert old == same != new
    assert anew.spec.fingerprint not in {old, new}


def test_a_tracker_that_cannot_be_fed_is_refused_with_what_to_do(plan: Plan, root: Path, monkeypatch, tmp_path: Path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/wandb.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    use = '["tensorboard", "wandb", "no-such"]'
    with pytest.raises(UsageError, match="no-such"):
        plan(training__trackers__use=use)
    (no_key,) = plan(training__trackers__use='["tensorboard", "wandb"]').problems
    assert "roost secrets set WANDB_API_KEY" in no_key
    vault.keep(root, "WANDB_API_KEY", "0123456789")
    assert plan(training__trackers__use='["tensorboard", "wandb"]').problems == []
    vault.forget(root, "WANDB_API_KEY")
    assert plan(training__trackers__use='["wandb"]', training__trackers__wandb_mode="offline").problems == []
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password 0123456789")
    (tmp_path / "netrc").chmod(0o600)
    assert plan(training__trackers__use='["wandb"]').problems == []
    (tmp_path / "packages/wandb.py").unlink()
    (missing,) = plan(training__trackers__use='["wandb"]').problems
    assert f"`{sys.executable} -m pip install wandb`" in missing
