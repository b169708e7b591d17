"""A plan that was shown is carried out exactly, or refused with what changed since."""

import msgspec
import pytest

from remote.errors import Conflict, NotFound
from remote.pipeline.applying import MOST_PLANS, keep_plan, read_plan, require_unchanged, what_changed
from remote.pipeline.plan import plan_run
from tests.pipeline.conftest import write_conversations


@pytest.fixture
def plan(root, python, document):
    shown = plan_run(document, {}, root=root, python=python)
    keep_plan(root, shown)
    return shown


def test_a_plan_of_an_unchanged_world_may_be_carried_out(plan, root, python):
    assert read_plan(root, plan.fingerprint) == plan
    require_unchanged(root, python, plan.run, plan.fingerprint)


def test_other_conversations_are_named(plan, root, python):
    write_conversations(root / "conversations/train.jsonl", ["another answer"] * 12)
    with pytest.raises(Conflict, match=rf"data.train was {plan.facts['data.train']}, is "):
        require_unchanged(root, python, plan.run, plan.fingerprint)


def test_what_was_made_meanwhile_is_named(plan, root, python):
    store = root / "runs/trial/store"
    store.mkdir(parents=True)
    (store / "shard").write_bytes(b"x")
    with pytest.raises(Conflict, match="set aside: it was never finished"):
        require_unchanged(root, python, plan.run, plan.fingerprint)


def test_another_run_under_a_plan_is_refused(plan, root, python):
    other = msgspec.structs.replace(plan.run, name="other")
    with pytest.raises(Conflict, match='name is "trial" there, asked for is "other"'):
        require_unchanged(root, python, other, plan.fingerprint)


@pytest.mark.parametrize("fingerprint", ["f" * 64, "../../../etc/passwd", ""])
def test_a_plan_that_was_never_shown_is_not_there(root, fingerprint):
    with pytest.raises(NotFound, match="no plan"):
        read_plan(root, fingerprint)


def test_a_plan_with_problems_is_not_kept_and_old_ones_go(plan, root):
    keep_plan(root, msgspec.structs.replace(plan, fingerprint="bad", problems=["no disk"]))
    with pytest.raises(NotFound):
        read_plan(root, "bad")
    for number in range(MOST_PLANS + 5):
        keep_plan(root, msgspec.structs.replace(plan, fingerprint=f"{number:064}"))
    assert len(list((root / "plans").iterdir())) == MOST_PLANS


def test_what_changed_is_never_empty(plan):
    assert what_changed(plan, plan) == ["something of its commands"]


def test_an_engine_of_another_version_is_another_plan(plan):
    later = msgspec.structs.replace(plan, facts={**plan.facts, "sglang": "version 9"})
    (words,) = what_changed(plan, later)
    assert words.startswith("sglang was ")
