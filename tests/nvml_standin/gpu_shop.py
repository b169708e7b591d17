"""Real jobs of trivial work that need GPUs of the stand-in for NVML."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remote.jobs.launch import LaunchPlan
from remote.jobs.leases import Leases
from remote.jobs.store import JobStore
from remote.protocol.jobs import Job
from remote.protocol.specs import MappingCopySpec, Spec
from tests.jobs.workshop import Workshop, end_everything_below
from tests.nvml_standin.nvml_standin import Standin

RELEASE = Path(__file__).resolve().parents[2]


def _plan(spec: Spec) -> LaunchPlan:
    """The grace of a stop and the devices travel in `destination`."""
    assert isinstance(spec, MappingCopySpec)
    grace_s, gpus, *named = spec.destination.split("/")
    return LaunchPlan(
        agent="mapping_copy",
        argv=[sys.executable, "-S", "-c", spec.source],
        stop_grace_s=float(grace_s),
        gpus=int(gpus),
        gpu_indices=tuple(map(int, named)),
    )


class GpuShop(Workshop):
    """A store whose jobs run small programs on devices that are shared with every other shop of the same directory."""

    def __init__(self, root: Path, devices: Path, nvml: Standin) -> None:
        self.root = root
        self.nvml = nvml
        self.devices = devices
        self.store = JobStore(root, RELEASE, sys.executable, plan=_plan, leases=Leases(devices, patience_s=0.0))

    def start_on(
        self, job_id: str, program: str, gpus: int, *named: int, grace_s: float = 5.0, run_id: str | None = None
    ) -> Job:
        """Start `program` on so many devices, or on those that are named."""
        spec = MappingCopySpec(source=program, destination="/".join(map(str, (grace_s, gpus, *named))))
        count = len(list(self.store.directory(job_id).parent.glob("*"))) + len(list((self.root / "ops").glob("*")))
        return self.store.start(job_id, spec, actor="ann", op_id=f"start-{job_id}-{count}", run_id=run_id)

    def launch(self, job_id: str) -> dict[str, Any]:
        """The job's launch record."""
        return msgspec.json.decode((self.store.directory(job_id) / "launch.json").read_bytes())

    def supervisor(self, job_id: str) -> int:
        """The pid of the job's first supervisor."""
        return self._started(job_id)["supervisor_pid"]

    def work(self, job_id: str) -> int:
        """The pid of the job's work."""
        return self._started(job_id)["pid"]

    def _started(self, job_id: str) -> dict[str, Any]:
        return msgspec.json.decode((self.store.directory(job_id) / "started.json").read_bytes())


@pytest.fixture
def gpu_shop(tmp_path: Path, nvml_standin: Standin, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuShop]:
    """A shop on eight idle devices, and nothing left of it afterwards."""
    nvml_standin.use(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    shop = GpuShop(tmp_path / "root", tmp_path / "devices", nvml_standin)
    yield shop
    end_everything_below(tmp_path)
    shutil.rmtree(shop.store._locks, ignore_errors=True)


@pytest.fixture
def other_root(gpu_shop: GpuShop, tmp_path: Path) -> Iterator[GpuShop]:
    """Another root of the same user, on the same devices."""
    shop = GpuShop(tmp_path / "other", gpu_shop.devices, gpu_shop.nvml)
    yield shop
    shutil.rmtree(shop.store._locks, ignore_errors=True)
