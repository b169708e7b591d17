"""A host with a finished run, a run at work and finished jobs."""

import sys
from pathlib import Path

import msgspec
import pytest

from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished
from remote.protocol.run import RunConfig
from remote.protocol.specs import RunSpec, Spec
from tests.jobs.workshop import RELEASE, Workshop, workshop

__all__ = ["host", "workshop"]

RUN = {
    "name": "old",
    "target": {"model": "models/target"},
    "data": {"train": "train.jsonl", "evaluation": "eval.jsonl"},
    "engine": {"device": "cpu"},
    "extraction": {"layer_ids": [1, 2]},
    "vocabulary": {"draft_vocab_size": 16},
    "training": {},
}
DONE = 'open("result.json", "w").write(\'{"type": "job_result", "outputs": [], "summary": {}}\')'
SLEEP = "import time; print('asleep', flush=True); time.sleep(600)"


def plan_runs(spec: Spec) -> LaunchPlan:
    assert isinstance(spec, RunSpec)
    program = SLEEP if spec.run.name == "busy" else DONE
    return LaunchPlan(agent="run", argv=[sys.executable, "-S", "-c", program], stop_grace_s=2.0)


def run_config(name: str, directory: str | None = None) -> RunConfig:
    return msgspec.convert({**RUN, "name": name, "directory": directory}, RunConfig)


def fill(directory: Path) -> None:
    for part in ("store", "mapping", "checkpoints", "drafter", "verdict", "spool"):
        (directory / part).mkdir(parents=True)
        (directory / part / "data.bin").write_bytes(part.encode() * 5000)
        (directory / part / "manifest.json").write_text("{}")


class Host:
    """A store of runs, and their directories."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        self.root = shop.root
        self.store = JobStore(shop.root, RELEASE, sys.executable, plan=plan_runs)

    def run(self, name: str, directory: str | None = None) -> Path:
        config = run_config(name, directory)
        self.store.start(f"run-{name}", RunSpec(run=config), actor="ann", op_id=f"start-{name}")
        place = self.root / (directory or f"runs/{name}")
        fill(place)
        if name != "busy":
            self.shop.until(f"run-{name}", lambda job: isinstance(job.state, Finished))
        return place


@pytest.fixture
def host(workshop: Workshop) -> Host:
    return Host(workshop)
