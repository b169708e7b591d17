"""Load by others: what a measurement's own processes use is not counted, what everybody else uses is."""

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from remote.agents.evaluation.load import LoadByOthers

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


@pytest.fixture
def idle() -> Iterator[psutil.Process]:
    with subprocess.Popen(["/bin/sleep", "600"]) as started:
        yield psutil.Process(started.pid)
        started.kill()


@pytest.fixture
def busy() -> Iterator[psutil.Process]:
    """A process whose child keeps a core busy, as an engine's scheduler does."""
    started = subprocess.Popen([sys.executable, "-c", PARENT])
    process = psutil.Process(started.pid)
    try:
        while not process.children():
            time.sleep(0.01)
        yield process
    finally:
        for one in [*process.children(), process]:
            one.kill()
        started.wait()


def test_a_busy_process_is_load_unless_it_is_the_server_that_is_measured(
    busy: psutil.Process, idle: psutil.Process
) -> None:
    spinning = busy.children()[0]
    before, began = spinning.cpu_times().user, time.monotonic()
    by_others, by_all_but_it = LoadByOthers(idle.pid), LoadByOthers(busy.pid)
    while spinning.cpu_times().user - before < 1.0:
        time.sleep(0.05)
    seen, left = by_others.cores(), by_all_but_it.cores()
    assert seen is not None
    assert left is not None
    share = (spinning.cpu_times().user - before) / (time.monotonic() - began)
    # What else the machine does is in both figures.
    assert seen - left > share / 2


def test_a_server_that_is_not_known_or_gone_makes_the_load_unknown() -> None:
    assert LoadByOthers(None).cores() is None
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    assert LoadByOthers(gone.pid).cores() is None
