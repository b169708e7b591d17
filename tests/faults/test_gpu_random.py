"""Random starts, stops, kills and recoveries of jobs on eight devices, and work that finds out by itself whether it is alone.

NVML shows every device idle all the time: here only the locks and the records keep the jobs apart.
"""

import contextlib
import os
import random
import signal
import threading
from pathlib import Path

import pytest

from remote.errors import RoostError
from remote.jobs import gpu_locks, locks
from remote.protocol.jobs import is_over

THREADS = 3

# The workers inherit the descriptors, so that a device counts as used while anything of the job lives.
WORK = """
import fcntl, os, pathlib, subprocess, sys, time
use = pathlib.Path({use!r})
held = [open(use / name, "w") for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
for file in held:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (use / f"shared-{{os.environ['ROOST_JOB_DIR'].rsplit('/', 1)[-1]}}-{{file.name.rsplit('/', 1)[-1]}}").touch()
fds = [file.fileno() for file in held]
subprocess.Popen(["sleep", "600"], start_new_session=True, pass_fds=fds)
print("at work", flush=True)
time.sleep(600)
"""


class Chaos:
    def __init__(self, shop, use: Path, seed: int) -> None:
        self.shop = shop
        self.use = use
        self.seed = seed
        self.started: set[str] = set()
        self.turn = threading.Lock()

    def run(self, steps: int) -> None:
        threads = [threading.Thread(target=self._act, args=(number, steps)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _act(self, number: int, steps: int) -> None:
        dice = random.Random(f"{self.seed}-{number}")
        for step in range(steps):
            with contextlib.suppress(RoostError):
                self._one(dice, f"{number}-{step}")

    def _one(self, dice: random.Random, mark: str) -> None:
        action = dice.choice(("start", "start", "start", "stop", "kill", "recover"))
        if action == "start":
            name = f"job-{mark}"
            with self.turn:
                self.started.add(name)
            self.shop.start_on(name, WORK.format(use=str(self.use)), dice.choice((1, 2, 4, 8)), grace_s=0.2)
            return
        with self.turn:
            running = sorted(self.started)
        if not running:
            return
        name = dice.choice(running)
        if action == "stop":
            self.shop.store.stop(name, actor="ben", op_id=f"stop-{mark}", reason="chance")
        elif action == "recover":
            self.shop.store.recover(name)
        else:
            self._kill(name, dice)

    def _kill(self, name: str, dice: random.Random) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            supervisor, pid = self.shop.supervisor(name), self.shop.work(name)
            victims = dice.choice(((supervisor,), (pid,), (supervisor, pid)))
            if not is_over(self.shop.store.get(name).state):
                for victim in victims:
                    os.kill(victim, signal.SIGKILL)

    def end(self) -> None:
        for name in self.started:
            with contextlib.suppress(RoostError):
                self.shop.store.stop(name, actor="ben", op_id=f"end-{name}", reason="the test is over")


def check(shop, tmp_path: Path, seed: int, steps: int) -> None:
    use = tmp_path / "use"
    use.mkdir()
    chaos = Chaos(shop, use, seed)
    chaos.run(steps)
    assert [path.name for path in use.glob("shared-*")] == [], f"seed {seed}: two jobs on one device"
    chaos.end()
    everything = [place for index in range(8) for place in (use / str(index), gpu_locks.gpu_lock(shop.devices, index))]
    shop.wait_for(lambda: not any(map(locks.is_held, everything)))
    assert shop.start_on("last", "import time; time.sleep(600)", 8).gpus == list(range(8))


def test_no_two_jobs_are_ever_on_one_device(gpu_shop, tmp_path):
    check(gpu_shop, tmp_path, seed=1, steps=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_no_two_jobs_are_ever_on_one_device_in_a_long_run(gpu_shop, tmp_path, seed):
    check(gpu_shop, tmp_path, seed, steps=60)
