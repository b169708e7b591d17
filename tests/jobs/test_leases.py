"""Which devices a job needs, which it gets, and what it is told when it gets none."""

import ctypes
import json
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.errors import Conflict, Precondition, UsageError
from remote.jobs import gpu_locks, locks
from remote.jobs.gpu_demand import GpuDemand, gpu_demand
from remote.jobs.gpu_devices import Free, Holder, Leased, LeftBehind, Occupied, Unusable, choose, refusal
from remote.jobs.launch import plan
from remote.protocol.jobs import Finished, Running
from remote.protocol.run import EngineConfig, TrainingConfig
from remote.protocol.specs import ServerSpec, TrainingSpec

SLEEP = "print('asleep', flush=True)\nimport time\ntime.sleep(600)"
SHOW = """
import json, os
print(json.dumps({name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")}), flush=True)
"""


def server(**engine) -> ServerSpec:
    return ServerSpec(model="/m", engine=EngineConfig(**engine))


def training(device: str, ranks: int = 1) -> TrainingSpec:
    return TrainingSpec(
        store="/s",
        mapping="/m",
        target_model="/t",
        drafter="/d",
        checkpoints="/c",
        training=TrainingConfig(device=device, ranks=ranks),
        fingerprint="f",
    )


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (server(tensor_parallel_size=8), 8),
        (server(), 1),
        (server(device="cpu", tensor_parallel_size=8), 0),
        (server(tensor_parallel_size=2, flags={"dp-size": 4}), 8),
        (server(tensor_parallel_size=2, flags={"data-parallel-size": "2", "pp-size": 2}), 8),
        (server(tensor_parallel_size=8, flags={"dp-size": 8, "enable-dp-attention": True}), 8),
        (server(tensor_parallel_size=2, flags={"tp-size": 4}), 4),
        (training("cuda"), 1),
        (training("cuda", ranks=8), 8),
        (training("cpu", ranks=8), 0),
    ],
)
def test_the_devices_of_a_spec_come_from_its_own_sizes(spec, count):
    assert gpu_demand(spec) == GpuDemand(count)
    assert plan(spec, "python").gpus == count


def test_devices_that_are_named_are_the_ones_that_are_needed():
    spec = server(tensor_parallel_size=2, environment={"CUDA_VISIBLE_DEVICES": "5, 4"})
    assert gpu_demand(spec) == GpuDemand(2, (5, 4))


@pytest.mark.parametrize("named", ["0", "0,0", "GPU-1,GPU-2", "", "0,,1"])
def test_devices_that_are_named_wrongly_are_refused(named):
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        gpu_demand(server(tensor_parallel_size=2, environment={"CUDA_VISIBLE_DEVICES": named}))


@pytest.mark.parametrize(
    "engine", [{"environment": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}}, {"flags": {"base-gpu-id": 4}}]
)
def test_what_would_make_the_engine_use_other_devices_than_its_own_is_refused(engine):
    with pytest.raises(UsageError, match="devices"):
        gpu_demand(server(**engine))


@pytest.mark.parametrize(
    "kept_to", ["4,5", "GPU-00000000-0000-0000-0000-000000000004,GPU-00000000-0000-0000-0000-000000000005"]
)
def test_a_login_that_keeps_to_some_devices_is_respected(gpu_shop, monkeypatch, kept_to):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", kept_to)
    assert gpu_shop.start_on("two", SLEEP, 2).gpus == [4, 5]
    with pytest.raises(Precondition, match="GPU 0-3, 6-7: unusable: CUDA_VISIBLE_DEVICES in this host's environment"):
        gpu_shop.start_on("three", SLEEP, 3)


def test_a_size_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="dp-size"):
        gpu_demand(server(flags={"dp-size": "many"}))


STATES = st.sampled_from(
    [Free(), Leased(None), LeftBehind(Holder("/r", "j"), (7,)), Occupied("a process", fleeting=False), Unusable("lost")]
)


@given(st.lists(STATES, max_size=8), st.integers(1, 8))
def test_what_is_given_is_free_different_and_as_much_as_was_asked_for(devices, count):
    chosen = choose(devices, GpuDemand(count))
    free = [index for index, device in enumerate(devices) if isinstance(device, Free)]
    if len(free) < count:
        assert chosen is None
        assert f"needs {count} GPU" in str(refusal("job", "/r", devices, GpuDemand(count)))
    else:
        assert chosen == free[:count]


def test_named_devices_come_in_their_order_or_not_at_all():
    devices = [Free(), Leased(None), Free(), Free()]
    assert choose(devices, GpuDemand(2, (3, 0))) == [3, 0]
    assert choose(devices, GpuDemand(2, (0, 1))) is None
    assert choose(devices, GpuDemand(2, (0, 9))) is None
    assert "asks for GPU 9, but this host has 4" in str(refusal("job", "/r", devices, GpuDemand(2, (0, 9))))


def test_a_refusal_says_who_has_which_device_and_what_to_do():
    devices = [
        *[Leased(Holder("/r", "big-server"))] * 3,
        LeftBehind(Holder("/r", "old"), (11, 12)),
        Leased(Holder("/elsewhere", "theirs")),
        Occupied("process 4242 (python3), which holds 80.0 GiB", fleeting=False),
        Unusable("GPU is lost"),
        Free(),
    ]
    refused = refusal("new", "/r", devices, GpuDemand(8))
    assert str(refused) == (
        "new needs 8 GPUs; 1 of 8 is free: GPU 0-2: leased to the job big-server; "
        "GPU 3: used by processes 11, 12, left behind by the job old; "
        "GPU 4: leased to the job theirs (below /elsewhere); "
        "GPU 5: used by process 4242 (python3), which holds 80.0 GiB; GPU 6: unusable: GPU is lost"
    )
    assert refused.info.next_command == "roost status big-server"
    assert refusal("new", "/r", devices[3:], GpuDemand(8)).info.next_command == "roost stop old --confirm old"


def test_the_work_sees_its_devices_and_no_others(gpu_shop):
    gpu_shop.start_on("first", SLEEP, 3)
    job = gpu_shop.start_on("second", SHOW + SLEEP, 2)
    assert job.gpus == [3, 4]
    gpu_shop.until("second", lambda job: job.last_line == "asleep")
    seen = json.loads(gpu_shop.store.read_log("second", 0, 1 << 16).data.splitlines()[0])
    assert seen == {"CUDA_VISIBLE_DEVICES": "3,4", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert [held(gpu_shop, index) for index in range(8)] == [True] * 5 + [False] * 3


def test_work_without_gpus_is_left_as_it_is_and_asks_no_driver(gpu_shop):
    gpu_shop.nvml.change({"init.hang": 1})
    job = gpu_shop.start_on("plain", SHOW, 0)
    assert job.gpus == []
    gpu_shop.until("plain", lambda job: isinstance(job.state, Finished))
    assert json.loads(gpu_shop.store.get("plain").last_line)["CUDA_DEVICE_ORDER"] is None
    assert not gpu_shop.devices.exists()
    gpu_shop.nvml.change({"init.hang": 0})


def test_four_and_four_fit_and_a_ninth_does_not(gpu_shop):
    assert gpu_shop.start_on("one", SLEEP, 4).gpus == [0, 1, 2, 3]
    assert gpu_shop.start_on("two", SLEEP, 4).gpus == [4, 5, 6, 7]
    with pytest.raises(Precondition, match="GPU 0-3: leased to the job one; GPU 4-7: leased to the job two"):
        gpu_shop.start_on("three", SLEEP, 1)


def test_a_job_that_got_no_devices_is_not_there_and_starts_once_they_are_free(gpu_shop):
    gpu_shop.start_on("holder", SLEEP, 8)
    with pytest.raises(Precondition):
        gpu_shop.start_on("later", SLEEP, 8)
    assert [job.job_id for job in gpu_shop.store.list()] == ["holder"]
    gpu_shop.stop("holder")
    gpu_shop.until("holder", lambda job: isinstance(job.state, Finished))
    assert gpu_shop.start_on("later", SLEEP, 8).gpus == list(range(8))


def test_the_same_start_again_needs_no_second_set_of_devices(gpu_shop):
    first = gpu_shop.start_on("same", SLEEP, 8)
    again = gpu_shop.start_on("same", SLEEP, 8)
    assert again.state.pid == first.state.pid
    with pytest.raises(Conflict, match="another spec"):
        gpu_shop.start_on("same", SLEEP, 4)


def test_named_devices_are_leased_as_they_are_named(gpu_shop):
    job = gpu_shop.start_on("named", SHOW + SLEEP, 2, 6, 2)
    assert job.gpus == [6, 2]
    assert gpu_shop.start_on("rest", SLEEP, 3).gpus == [0, 1, 3]


def test_a_job_planned_before_and_never_started_gets_what_is_free_now(gpu_shop):
    gpu_shop.store._starter._python = "/nowhere/python"
    with pytest.raises(Precondition, match="cannot be run"):
        gpu_shop.start_on("planned", SHOW + SLEEP, 2)
    assert gpu_shop.launch("planned")["gpus"] == [0, 1]
    gpu_shop.store._starter._python = sys.executable
    gpu_shop.start_on("quick", SLEEP, 2)
    assert gpu_shop.start_on("planned", SHOW + SLEEP, 2).gpus == [2, 3]
    gpu_shop.until("planned", lambda job: job.last_line == "asleep")
    assert b'"2,3"' in gpu_shop.store.read_log("planned", 0, 1 << 16).data


def test_a_root_does_not_get_what_another_root_has(gpu_shop, other_root):
    gpu_shop.start_on("mine", SLEEP, 6)
    assert other_root.start_on("theirs", SLEEP, 2).gpus == [6, 7]
    with pytest.raises(Precondition, match=f"GPU 0-5: leased to the job mine \\(below {gpu_shop.root}\\)"):
        other_root.start_on("more", SLEEP, 1)


def test_two_that_start_at_once_for_all_devices_leave_one_winner_and_name_it(gpu_shop):
    starters = []
    for name in ("left", "right"):
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                code = 0 if isinstance(gpu_shop.start_on(name, SLEEP, 8).state, Running) else 2
            except Precondition as error:
                other = "right" if name == "left" else "left"
                code = 1 if f"GPU 0-7: leased to the job {other}" in str(error) else 4
            finally:
                os._exit(code)
        starters.append(pid)
    assert sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in starters) == [0, 1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices": 0}, "NVML answers and knows no device"),
        ({"init": 9}, "kernel module is not loaded"),
        ({"init": 18}, "mismatch"),
    ],
)
def test_a_host_without_devices_says_why(gpu_shop, changes, words):
    gpu_shop.nvml.change(changes)
    with pytest.raises(Precondition, match="needs 1 GPU, but .*" + words):
        gpu_shop.start_on("job", SLEEP, 1)


def test_a_host_without_the_library_says_so(gpu_shop, monkeypatch):
    monkeypatch.delenv("LD_LIBRARY_PATH")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        with pytest.raises(Precondition, match=r"needs 8 GPUs, but .*libnvidia-ml.so.1 is missing"):
            gpu_shop.start_on("job", SLEEP, 8)
    else:
        pytest.skip("this machine has an NVIDIA driver")


def test_a_lost_device_is_passed_over_and_named_when_it_is_missed(gpu_shop):
    gpu_shop.nvml.play("one_lost")
    assert gpu_shop.start_on("four", SLEEP, 4).gpus == [0, 1, 2, 4]
    with pytest.raises(Precondition, match=r"3 of 8 are free: .*GPU 3: unusable: GPU is lost"):
        gpu_shop.start_on("rest", SLEEP, 4)


def held(shop, index: int) -> bool:
    return locks.is_held(gpu_locks.gpu_lock(shop.devices, index))
