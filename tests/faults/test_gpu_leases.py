"""Devices whose users die, stay behind or belong to somebody else: nothing is given out twice, nothing is taken for free."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest

from remote.errors import Precondition
from remote.jobs import gpu_locks, gpu_processes, locks, process
from remote.jobs.leases import Leases
from remote.protocol.jobs import Finished, Lost, Orphaned, Running, Stopping, Unkillable
from remote.telemetry.occupancy import Occupancy

SLEEP = "print('asleep', flush=True)\nimport time\ntime.sleep(600)"
WITH_WORKERS = """
import subprocess, sys, time
workers = [
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    for rank in range(2)
]
print(*(worker.pid for worker in workers), flush=True)
time.sleep(600)
"""
SUCCEED = """
import json
json.dump({"type": "job_result", "outputs": [], "summary": {}}, open("result.json", "w"))
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


def finished(job) -> bool:
    return isinstance(job.state, Finished)


def is_gone(pid: int) -> bool:
    found = process.read_process(pid)
    return found is None or found.state == "Z"


def held(shop) -> list[int]:
    return [index for index in range(8) if locks.is_held(gpu_locks.gpu_lock(shop.devices, index))]


def workers_of(shop, job_id: str) -> list[int]:
    shop.until(job_id, lambda job: job.last_line != "")
    return [int(pid) for pid in shop.store.get(job_id).last_line.split()]


def lose(shop, job_id: str, program: str = WITH_WORKERS) -> list[int]:
    """Kill a job and its supervisor, not its workers; their pids."""
    pid = shop.start_on(job_id, program, 8).state.pid
    workers = workers_of(shop, job_id)
    os.kill(shop.supervisor(job_id), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    shop.until(job_id, lambda job: isinstance(job.state, Lost))
    return workers


def kill_the_work(shop) -> None:
    os.kill(shop.store.get("job").state.pid, signal.SIGKILL)


ENDINGS = {
    "exit 0": (SUCCEED, lambda shop: None),
    "crash": ("raise SystemExit(3)", lambda shop: None),
    "kill": (SLEEP, kill_the_work),
    "stop": (SLEEP, lambda shop: shop.stop("job")),
    "stop of the deaf": (DEAF, lambda shop: shop.until("job", lambda job: job.last_line) and shop.stop("job")),
    "supervisor told to end": (SLEEP, lambda shop: os.kill(shop.supervisor("job"), signal.SIGTERM)),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_devices_are_free_the_moment_their_job_is_over(gpu_shop, ending):
    program, end = ENDINGS[ending]
    gpu_shop.start_on("job", program, 8, grace_s=0.3)
    end(gpu_shop)
    gpu_shop.until("job", finished)
    assert gpu_shop.start_on("next", SLEEP, 8).gpus == list(range(8))


def test_a_start_that_fails_keeps_no_device(gpu_shop):
    gpu_shop.store._starter._python = "/nowhere/python"
    with pytest.raises(Precondition):
        gpu_shop.start_on("never", SLEEP, 8)
    gpu_shop.store._starter._python = sys.executable
    assert gpu_shop.start_on("next", SLEEP, 8).gpus == list(range(8))


def test_devices_of_a_killed_supervisor_are_not_given_out_while_its_work_lives(gpu_shop):
    pid = gpu_shop.start_on("orphan", SLEEP, 8).state.pid
    os.kill(gpu_shop.supervisor("orphan"), signal.SIGKILL)
    gpu_shop.until("orphan", lambda job: isinstance(job.state, Orphaned))
    assert held(gpu_shop) == [], "the kernel freed the locks"
    with pytest.raises(Precondition, match=f"GPU 0-7: used by process {pid}, left behind by the job orphan"):
        gpu_shop.start_on("next", SLEEP, 1)


def test_another_root_sees_what_a_killed_supervisor_left_behind(gpu_shop, other_root):
    pid = gpu_shop.start_on("orphan", SLEEP, 8).state.pid
    os.kill(gpu_shop.supervisor("orphan"), signal.SIGKILL)
    gpu_shop.until("orphan", lambda job: isinstance(job.state, Orphaned))
    words = f"GPU 0-7: used by process {pid}, left behind by the job orphan \\(below {gpu_shop.root}\\)"
    with pytest.raises(Precondition, match=words):
        other_root.start_on("next", SLEEP, 1)


def test_a_supervisor_that_adopts_the_work_holds_its_devices_again(gpu_shop):
    gpu_shop.start_on("orphan", SLEEP, 5)
    os.kill(gpu_shop.supervisor("orphan"), signal.SIGKILL)
    gpu_shop.until("orphan", lambda job: isinstance(job.state, Orphaned))
    gpu_shop.store.recover("orphan")
    gpu_shop.until("orphan", lambda job: isinstance(job.state, Running))
    assert held(gpu_shop) == [0, 1, 2, 3, 4]
    with pytest.raises(Precondition, match="GPU 0-4: leased to the job orphan"):
        gpu_shop.start_on("next", SLEEP, 8)
    gpu_shop.stop("orphan")
    gpu_shop.until("orphan", finished)
    gpu_shop.start_on("next", SLEEP, 8)


def test_a_lock_directory_that_was_emptied_gives_no_device_twice(gpu_shop):
    """A cleaner of temporary files takes the locks' names away, and with them what the kernel knows."""
    pid = gpu_shop.start_on("job", SLEEP, 8).state.pid
    for lock in gpu_shop.devices.iterdir():
        lock.unlink()
    with pytest.raises(Precondition, match=f"used by process {pid}"):
        gpu_shop.start_on("next", SLEEP, 1)


@pytest.mark.parametrize("report", ["sglang#23627", "vllm#55510"])
def test_orphan_workers_that_hold_memory_are_named_and_swept_before_the_next_server(gpu_shop, report):
    """The server is gone and its port is free, but its workers hold the devices: the next one must not start into that."""
    workers = lose(gpu_shop, "old-server")
    gpu_shop.nvml.change({f"gpu{index}.processes": f"{workers[index % 2]}:{80 << 30}" for index in range(8)})
    with pytest.raises(Precondition, match="left behind by the job old-server") as refused:
        gpu_shop.start_on("new-server", SLEEP, 8)
    assert all(str(pid) in str(refused.value) for pid in workers)
    assert refused.value.info.next_command == "roost stop old-server --confirm old-server"
    assert not any(map(is_gone, workers)), "naming is not ending"
    gpu_shop.stop("old-server")
    gpu_shop.wait_for(lambda: all(map(is_gone, workers)))
    gpu_shop.nvml.play("healthy")
    assert gpu_shop.start_on("new-server", SLEEP, 8).gpus == list(range(8))


def test_a_start_waits_while_what_is_left_of_a_lost_job_is_being_ended(gpu_shop):
    workers = lose(
        gpu_shop, "lost", program=WITH_WORKERS.replace("import time;", "import time, signal; signal.signal(15, 1);")
    )
    gpu_shop.store._starter.leases = Leases(gpu_shop.devices, patience_s=60.0)
    gpu_shop.store.recover("lost")
    assert not all(map(is_gone, workers)), "they ignore the polite signal"
    assert gpu_shop.start_on("next", SLEEP, 8).gpus == list(range(8))
    assert all(map(is_gone, workers))


def test_strays_of_a_lost_job_are_swept_by_whoever_looks_after_the_jobs(gpu_shop):
    workers = lose(gpu_shop, "lost")
    gpu_shop.store.recover_all()
    gpu_shop.wait_for(lambda: all(map(is_gone, workers)))
    gpu_shop.start_on("next", SLEEP, 8)


def test_lost_jobs_that_were_looked_after_cost_no_search_for_processes(gpu_shop, monkeypatch):
    lose(gpu_shop, "lost")
    gpu_shop.store.recover("lost")
    gpu_shop.wait_for((gpu_shop.store.directory("lost") / "lost.json").exists)
    searches = []
    monkeypatch.setattr(process, "find_members", lambda *of: searches.append(of) or [])
    gpu_shop.start_on("next", SLEEP, 8)
    assert searches == []


@pytest.mark.parametrize("report", ["skypilot#757", "skypilot#233"])
def test_a_stop_is_over_only_when_the_whole_tree_is_gone(gpu_shop, report):
    """A job that was reported as cancelled while its ranks kept the devices busy."""
    gpu_shop.start_on("tree", WITH_WORKERS, 8)
    workers = workers_of(gpu_shop, "tree")
    state = gpu_shop.stop("tree").state
    while not isinstance(state, Finished):
        assert isinstance(state, Stopping | Unkillable)
        with_devices = held(gpu_shop)
        some_live = not all(map(is_gone, workers))
        state = gpu_shop.store.get("tree").state
        assert not (isinstance(state, Finished) and some_live and not with_devices)
    assert all(map(is_gone, workers))
    assert held(gpu_shop) == []


def test_skypilot_4318_stopping_one_job_leaves_its_neighbours_and_their_devices_alone(gpu_shop):
    gpu_shop.start_on("one", WITH_WORKERS, 4)
    neighbour = gpu_shop.start_on("two", WITH_WORKERS, 4)
    others = workers_of(gpu_shop, "two")
    gpu_shop.stop("one")
    gpu_shop.until("one", finished)
    assert gpu_shop.store.get("two").state == neighbour.state
    assert not any(map(is_gone, others))
    assert held(gpu_shop) == [4, 5, 6, 7]


def test_training_follows_the_server_on_the_same_devices(gpu_shop):
    """What a run does: stop the server, wait until it is over, start the training."""
    gpu_shop.start_on("run", SLEEP, 0)
    gpu_shop.start_on("run-server", WITH_WORKERS, 8, run_id="run")
    workers_of(gpu_shop, "run-server")
    with pytest.raises(Precondition, match="GPU 0-7: leased to the job run-server"):
        gpu_shop.start_on("run-training", SLEEP, 8, run_id="run")
    gpu_shop.stop("run-server")
    gpu_shop.until("run-server", finished)
    assert gpu_shop.start_on("run-training", SLEEP, 8, run_id="run").gpus == list(range(8))


@pytest.fixture
def stranger():
    """A process of this machine that no job of ours started."""
    stranger = subprocess.Popen(["sleep", "600"])
    yield stranger.pid
    stranger.kill()
    stranger.wait()


def test_a_device_with_a_foreign_process_is_refused_with_its_pid_and_memory(gpu_shop, stranger, monkeypatch):
    monkeypatch.setattr(gpu_processes, "is_first_namespace", lambda: True)
    gpu_shop.nvml.play("one_busy")
    gpu_shop.nvml.change({"gpu2.processes": f"{stranger}:{80 << 30}"})
    words = rf"7 of 8 are free: GPU 2: used by process {stranger} \(sleep\), which holds 80.0 GiB"
    with pytest.raises(Precondition, match=words) as refused:
        gpu_shop.start_on("server", SLEEP, 8)
    assert "Roost ends nothing that it did not start" in refused.value.info.hint
    assert gpu_shop.start_on("smaller", SLEEP, 4).gpus == [0, 1, 3, 4], "the others may be used"
    assert not is_gone(stranger)


def test_a_process_that_only_shares_its_number_with_one_in_this_container_is_not_blamed(
    gpu_shop, stranger, monkeypatch
):
    monkeypatch.setattr(gpu_processes, "is_first_namespace", lambda: False)
    gpu_shop.nvml.play("one_busy")
    gpu_shop.nvml.change({"gpu2.processes": f"{stranger}:{80 << 30}"})
    words = rf"a process that this container cannot see \(pid {stranger} by the driver's count\), which holds 80.0 GiB"
    with pytest.raises(Precondition, match=words):
        gpu_shop.start_on("server", SLEEP, 8)


def test_memory_without_a_process_is_a_process_that_cannot_be_seen(gpu_shop, monkeypatch):
    monkeypatch.setattr(gpu_processes, "is_first_namespace", lambda: False)
    gpu_shop.nvml.change({"gpu0.memory.used": 3 << 30})
    with pytest.raises(Precondition, match="GPU 0: used by a process that this container cannot see, which holds 3"):
        gpu_shop.start_on("server", SLEEP, 8)
    gpu_shop.nvml.change({"gpu0.memory.used": 300 << 20})
    gpu_shop.start_on("server", SLEEP, 8)


def test_memory_that_the_driver_frees_a_moment_later_is_waited_for(gpu_shop):
    """Another process's devices come free while the choice waits: nobody has to try again by hand."""
    gpu_shop.nvml.change({"memory.used": 3 << 30})
    looks = []
    ask = gpu_shop.store._starter.leases._ask

    def look():
        looks.append(ask())
        gpu_shop.nvml.play("healthy")
        return looks[-1]

    gpu_shop.store._starter.leases = Leases(gpu_shop.devices, ask=look, patience_s=60.0)
    assert gpu_shop.start_on("server", SLEEP, 8).gpus == list(range(8))
    assert len(looks) == 2


def test_a_process_of_another_job_on_a_device_that_it_was_not_given_is_named_with_its_job(gpu_shop, monkeypatch):
    monkeypatch.setattr(gpu_processes, "is_first_namespace", lambda: True)
    intruder = gpu_shop.start_on("intruder", SLEEP, 1).state.pid
    gpu_shop.until("intruder", lambda job: job.last_line == "asleep")
    gpu_shop.nvml.change({"gpu5.processes": f"{intruder}:{1 << 30}"})
    with pytest.raises(Precondition, match="of the job intruder, which was not given this device"):
        gpu_shop.start_on("server", SLEEP, 7)


def test_a_driver_that_hangs_on_one_device_costs_that_device(gpu_shop):
    quick = """
import os, sys
import msgspec
from remote.telemetry import occupancy
occupancy._CALL_TIMEOUT_S = 0.3
sys.stdout.buffer.write(msgspec.json.encode(occupancy.read_occupancy()))
sys.stdout.flush()
os._exit(0)
"""

    def ask() -> Occupancy:
        answer = subprocess.run([sys.executable, "-c", quick], capture_output=True, check=True).stdout
        return msgspec.json.decode(answer, type=Occupancy)

    gpu_shop.nvml.play("one_hangs")
    gpu_shop.store._starter.leases = Leases(gpu_shop.devices, ask=ask, patience_s=0.0)
    assert gpu_shop.start_on("seven", SLEEP, 7).gpus == [0, 1, 2, 3, 4, 6, 7]
    with pytest.raises(Precondition, match="GPU 5: unusable: the driver has not answered"):
        gpu_shop.start_on("more", SLEEP, 1)


def test_the_work_does_not_inherit_the_locks_of_its_devices(gpu_shop):
    """Else a stray would keep them held, in nobody's name."""
    program = """
import os, pathlib
print(*(os.readlink(entry) for entry in pathlib.Path("/proc/self/fd").iterdir() if entry.exists()))
"""
    gpu_shop.start_on("bare", program, 2)
    gpu_shop.until("bare", finished)
    assert "out.log" in gpu_shop.store.get("bare").last_line
    assert "gpu0.lock" not in gpu_shop.store.get("bare").last_line


def test_the_lock_names_its_holder(gpu_shop):
    gpu_shop.start_on("holder", SLEEP, 1)
    content = json.loads(gpu_locks.gpu_lock(gpu_shop.devices, 0).read_bytes())
    assert content == {"root": str(gpu_shop.store.root), "job_id": "holder"}
