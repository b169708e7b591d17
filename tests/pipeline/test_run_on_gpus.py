"""A run whose every engine and whose training need all GPUs of the host: each gives them back before the next one starts."""

import shutil
import sys
from collections.abc import Iterator

import msgspec
import pytest

from remote.errors import Precondition
from remote.jobs import gpu_locks, locks
from remote.jobs.launch import LaunchPlan
from remote.jobs.launch import plan as plan_launch
from remote.jobs.leases import Leases
from remote.jobs.locks import lock_directory
from remote.jobs.store import JobStore
from remote.pipeline.config import load_run
from remote.protocol.jobs import Finished
from remote.protocol.progress import STAGES
from remote.protocol.specs import ServerSpec, Spec, TrainingSpec
from tests.pipeline.test_runner import RELEASE, Bench, kinds, plan_small, until

GPUS = {"engine__device": "cuda", "engine__tensor_parallel_size": "8", "training__device": "cuda"}


def plan_on_gpus(spec: Spec) -> LaunchPlan:
    needed = 8 if isinstance(spec, TrainingSpec) else plan_launch(spec, sys.executable).gpus
    return msgspec.structs.replace(plan_small(spec), gpus=needed)


@pytest.fixture
def bench(root, document, nvml_standin, tmp_path, monkeypatch) -> Iterator[Bench]:
    nvml_standin.use(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = Bench(root, document)
    leases = Leases(tmp_path / "devices", patience_s=0.0)
    made.store = JobStore(root, RELEASE, sys.executable, plan=plan_on_gpus, leases=leases)
    yield made
    for job_id in made.running():
        made.store.stop(job_id, actor="test", op_id=f"end-{job_id}"[:64], reason="the test is over")
    until(lambda: not made.running())
    shutil.rmtree(lock_directory(root))


def test_every_stage_has_all_devices_in_its_turn(bench, tmp_path):
    job = bench.open()
    bench.conduct(job, **GPUS)
    assert kinds(job) == dict.fromkeys(STAGES, "done")
    had = {name: found.gpus for name, found in bench.jobs(job.job_id).items()}
    everything = list(range(8))
    assert {name for name, gpus in had.items() if gpus == everything} >= {"server", "training"}
    assert all(gpus == everything or not gpus for gpus in had.values())
    assert len([gpus for gpus in had.values() if gpus]) == 4, "two arms are served besides"
    assert not any(locks.is_held(gpu_locks.gpu_lock(tmp_path / "devices", index)) for index in everything)


def test_a_run_that_meets_another_jobs_devices_fails_with_its_name_and_leaves_it_alone(bench):
    other = bench.store.start("other-server", _server(bench), actor="ben", op_id="start-other", run_id=None)
    job = bench.open()
    with pytest.raises(Precondition, match="GPU 0-7: leased to the job other-server"):
        bench.conduct(job, **GPUS)
    assert not isinstance(bench.store.get(other.job_id).state, Finished)
    assert bench.running() == ["other-server"]


def _server(bench: Bench) -> Spec:
    keys = {key.replace("__", "."): value for key, value in GPUS.items()}
    run = load_run(bench.document, keys)
    return ServerSpec(model=run.target.model, engine=run.engine)
