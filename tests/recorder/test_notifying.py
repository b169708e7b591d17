"""A recorder that tells people who are not looking, with a real receiver."""

import sys
import time
from pathlib import Path

import pytest

from remote.jobs.launch import LaunchPlan, plan
from remote.jobs.store import JobStore
from remote.link.telemetry import TelemetrySource
from remote.notifications import desk
from remote.notifications.outbox import Outbox
from remote.protocol.jobs import Finished
from remote.protocol.notifications import WEBHOOK_KEY, WEBHOOK_URL, Delivered
from remote.protocol.specs import Spec, TrainingSpec
from tests.jobs.workshop import RELEASE, end_everything_below
from tests.notifications.receiver import receiver
from tests.notifications.test_webhook import KEY
from tests.protocol.protocol_samples import TRAINING_SPEC

__all__ = ["receiver"]

PATIENCE_S = 60.0


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def plan_failing(spec: Spec) -> LaunchPlan:
    """The real recorder, and trainings that fail at once."""
    if not isinstance(spec, TrainingSpec):
        return plan(spec, sys.executable)
    return LaunchPlan(agent="training", argv=[sys.executable, "-S", "-c", "raise SystemExit(3)"], stop_grace_s=5.0)


@pytest.fixture
def store(tmp_path: Path):
    store = JobStore(tmp_path / "root", RELEASE, sys.executable, plan=plan_failing)
    yield store
    for name in (WEBHOOK_URL, WEBHOOK_KEY):
        store.secrets.remove(name, op_id=f"remove-{name.lower().replace('_', '-')}")
    end_everything_below(tmp_path)


def test_a_failed_training_is_posted_and_told_to_whoever_looks(store: JobStore, receiver) -> None:
    store.secrets.set(WEBHOOK_URL, receiver.url, actor="ann", op_id="set-1")
    store.secrets.set(WEBHOOK_KEY, KEY, actor="ann", op_id="set-2")
    source = TelemetrySource(store)
    assert source.read().notifications == []
    store.start("training-a", TRAINING_SPEC, actor="ann", op_id="start-1")
    until(lambda: isinstance(store.get("training-a").state, Finished))
    (told,) = until(lambda: source.read().notifications)
    assert (told.kind, told.subject) == ("failed", "training-a")
    until(lambda: receiver.got)
    outbox = Outbox(store.root)
    until(lambda: isinstance(outbox.read("job-training-a").delivery, Delivered))
    desk.try_webhook(store.root, "again")
    until(lambda: len(receiver.got) == 2)
    assert [headers["webhook-id"] for headers, _ in receiver.got] == ["job-training-a", "test-again"]
    assert desk.list_notifications(store.root).has_webhook
