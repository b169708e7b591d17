"""One rank of a real training that is stopped is found in time, and a long checkpoint is no alarm."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.link.telemetry import TelemetrySource
from remote.protocol.specs import MappingCopySpec
from tests.jobs.workshop import RELEASE, end_everything_below

PROMISE_S = 30.0
"""By the host's clock; what is told later is told too late."""

LONG_CHECKPOINT_S = 45.0
PROGRAM = Path(__file__).with_name("ddp_job.py")


def until(condition, timeout_s: float = 120.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


@pytest.fixture
def training(tmp_path):
    """A store with the job at work, and what the recorder says of it."""
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    shop = JobStore(
        tmp_path / "root",
        RELEASE,
        sys.executable,
        plan=lambda spec: LaunchPlan(
            agent="training", argv=[sys.executable, str(PROGRAM), str(port)], stop_grace_s=5.0
        ),
    )
    shop.start("training", MappingCopySpec(source="/a", destination="/b"), actor="ann", op_id="start")
    yield JobStore(tmp_path / "root", RELEASE, sys.executable)
    end_everything_below(tmp_path)


def told(source):
    """What the newest sample diagnoses of the job, and the sample."""
    sample = source.read()
    return [one for one in sample.diagnoses if one.job_id == "training"], sample


@pytest.mark.slow
def test_a_suspended_rank_is_found_and_a_long_checkpoint_is_no_alarm(training):
    source = TelemetrySource(training)
    until(lambda: (found := told(source)[1].jobs) and len(found[0].ranks) == 2 and found[0].activity == "step")
    directory = training.directory("training")
    (directory / "save").touch()
    until(lambda: told(source)[1].jobs[0].activity == "checkpoint")
    saved_until = time.time() + LONG_CHECKPOINT_S
    while time.time() < saved_until:
        found, sample = told(source)
        assert found == [], sample.jobs
    (directory / "save").unlink()
    before = until(lambda: (sample := told(source)[1]).jobs[0].activity == "step" and sample)
    assert told(source)[0] == []
    victim = next(rank for rank in before.jobs[0].ranks if rank.rank == 1)
    os.kill(victim.pid, signal.SIGSTOP)
    stopped_at = time.time()
    found, sample = until(lambda: (said := told(source))[0] and said)
    assert sample.sampled_at - stopped_at <= PROMISE_S
    (diagnosis, *_) = found
    assert diagnosis.code == "straggler"
    assert str(victim.pid) in diagnosis.summary + diagnosis.evidence
    assert "rank 1" in diagnosis.summary + diagnosis.evidence
    os.kill(victim.pid, signal.SIGCONT)
    until(lambda: told(source)[0] == [])
