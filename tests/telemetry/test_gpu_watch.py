"""The process that asks NVML as its parent keeps it: heard, replaced when it dies or falls silent, gone with the parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from remote.protocol.telemetry import GpuEvent
from remote.telemetry.gpu_reading import ReaderReport
from remote.telemetry.gpu_watch import GpuWatch
from tests.telemetry.nvml_programs import QUICK, RELEASE
from tests.telemetry.readings import gpu

PATIENCE_S = 60.0


class Clock:
    """The time of a test, which passes and can be moved on."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def watches() -> Iterator[Any]:
    running: list[GpuWatch] = []

    def start(*arguments, **options) -> GpuWatch:
        running.append(GpuWatch(*arguments, **options))
        running[-1].start()
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def nvml(nvml_standin, monkeypatch):
    nvml_standin.use(monkeypatch)
    return nvml_standin


def until(watch, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds(reading := watch.reading()):
        assert time.monotonic() < deadline, f"waited in vain: {reading}"
        time.sleep(0.01)
    return reading


def saying(*lines: ReaderReport, then: str = "time.sleep(600)") -> tuple[str, ...]:
    """A command that says these reports."""
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    return (sys.executable, "-S", "-c", f"import os, signal, sys, time; os.write(1, {text!r}); {then}")


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_newest_reading_is_there_without_waiting(nvml, watches):
    watch = watches(QUICK)
    assert watch.reading().source == "none"
    reading = until(watch, lambda reading: reading.source == "simulated" and not any(gpu.error for gpu in reading.gpus))
    assert len(reading.gpus) == 8
    before = reading.gpus[0].sampled_at
    until(watch, lambda reading: reading.gpus[0].sampled_at > before)
    until(watch, lambda _: watch.topology() is not None)
    assert watch.topology().driver_version.endswith("(simulated)")


def test_no_driver_is_no_error(watches, monkeypatch, tmp_path):
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    reading = until(watches(QUICK), lambda reading: reading.detail != "no reading yet")
    assert reading.source in {"none", "nvml"}
    assert reading.detail or reading.gpus


def test_a_process_that_the_driver_kills_is_replaced_and_that_is_said(nvml, watches):
    watch = watches(QUICK)
    until(watch, lambda reading: len(reading.gpus) == 8)
    first = watch.pid
    nvml.change({"gpu2.power.abort": 1})
    reading = until(watch, lambda reading: "SIGABRT" in reading.detail)
    assert len(reading.gpus) == 8, "the last figures stay until they are old"
    nvml.change({"gpu2.power.abort": 0})
    until(watch, lambda _: watch.pid not in {None, first})
    reading = until(watch, lambda reading: "was started again" in reading.detail)
    until(watch, lambda reading: not any(gpu.error for gpu in reading.gpus))


def test_a_process_that_keeps_dying_is_started_ever_more_seldom(watches):
    clock = Clock()
    watch = watches(command=saying(then="os.kill(os.getpid(), signal.SIGSEGV)"), clock=clock)
    pauses = []
    for _ in range(8):
        until(watch, lambda _: watch.pid is None)
        pauses.append(round(watch._next_start_at - clock(), 1))
        clock.ahead_s += pauses[-1] + 0.01
        watch.reading()
    assert pauses == sorted(pauses)
    assert 0.5 < pauses[0] < 1.1
    assert 50 < pauses[-1] <= 60
    assert "SIGSEGV" in watch.reading().detail


def test_silence_takes_the_figures_away_and_the_process_with_it(watches):
    clock = Clock()
    said = ReaderReport(source="nvml", gpus=[gpu(0, sampled_at=5.0), gpu(1, sampled_at=5.0)])
    watch = watches(command=saying(said), clock=clock)
    reading = until(watch, lambda reading: reading.gpus)
    silent = watch.pid
    clock.ahead_s += 4
    assert watch.reading().source == "nvml"
    clock.ahead_s += 3
    reading = watch.reading()
    assert reading.source == "error"
    assert "the NVIDIA driver has not answered for 7 s" in reading.detail
    assert [(one.uuid, one.power_watts, one.sampled_at) for one in reading.gpus] == [
        ("GPU-0", None, 5.0),
        ("GPU-1", None, 5.0),
    ]
    assert {one.error for one in reading.gpus} == {"the NVIDIA driver has not answered for 7 s"}
    until(watch, lambda _: not is_alive(silent))
    clock.ahead_s += 2
    until(watch, lambda reading: reading.source == "nvml")
    assert watch.pid not in {None, silent}


def test_a_driver_that_takes_long_to_wake_is_waited_for(watches):
    clock = Clock()
    watch = watches(command=saying(), clock=clock)
    pid = watch.pid
    clock.ahead_s += 40
    assert "has not answered for 40 s" in watch.reading().detail
    assert watch.pid == pid
    clock.ahead_s += 30
    watch.reading()
    assert watch.pid is None


def test_processes_that_cannot_be_killed_are_left_and_not_heaped_up(watches, monkeypatch):
    clock = Clock()
    watch = watches(command=saying(ReaderReport(source="nvml", gpus=[gpu()])), clock=clock)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: None)
    pids = set()
    for _ in range(6):
        until(watch, lambda _: watch.pid is None or watch._child.heard_at is not None)
        pids.add(watch.pid)
        clock.ahead_s += 6
        watch.reading()
        clock.ahead_s += 70
    assert len(pids - {None}) == 3
    assert all(is_alive(pid) for pid in pids - {None})
    monkeypatch.undo()
    for one in watch._left:
        one.kill()


def test_a_new_process_does_not_know_the_name_of_a_lost_device_but_the_old_one_did(watches):
    lost = replace(gpu(1), name="", uuid="", error="lost", sampled_at=None)
    known = ReaderReport(source="nvml", gpus=[gpu(0), gpu(1, sampled_at=3.0)])
    watch = watches(command=saying(known, ReaderReport(source="nvml", gpus=[gpu(0), lost])))
    second = until(watch, lambda reading: reading.gpus and reading.gpus[1].error).gpus[1]
    assert (second.name, second.uuid, second.sampled_at) == ("card", "GPU-1", 3.0)


def test_a_device_that_was_lost_before_the_recorder_began_has_the_name_of_the_reading_before(watches):
    lost = replace(gpu(1), name="", uuid="", error="lost", sampled_at=None)
    watch = watches(command=saying(ReaderReport(source="nvml", gpus=[gpu(0), lost])), known=[gpu(1, sampled_at=3.0)])
    found = until(watch, lambda reading: reading.gpus).gpus[1]
    assert (found.name, found.uuid, found.sampled_at) == ("card", "GPU-1", 3.0)


def test_lines_that_the_drivers_library_writes_are_no_reports(watches):
    noise = "import os, time; os.write(1, b'NVML: hello\\n'); "
    command = saying(ReaderReport(source="nvml", gpus=[gpu()]))
    watch = watches(command=(*command[:-1], noise + command[-1]))
    assert until(watch, lambda reading: reading.gpus).source == "nvml"


def event(at: float, **changes) -> GpuEvent:
    values = {"at": at, "gpu_index": 3, "xid": 79, "text": "XID 79", "source": "nvml"}
    return GpuEvent(**values | changes)


def test_an_event_of_both_sources_is_told_once(watches):
    events = [
        event(100.0),
        event(101.5, source="kernel_log", text="XID 79: it has fallen off the bus"),
        event(101.6, source="kernel_log", xid=None, text="NVRM: GPU 0000:40:00.0: GPU has fallen off the bus."),
        event(101.6, gpu_index=4),
        event(101.7, xid=31),
        event(150.0),
        event(160.0, xid=None, text="uncorrectable memory error"),
        event(160.5, xid=None, text="uncorrectable memory error"),
    ]
    watch = watches(command=saying(*(ReaderReport(source="nvml", gpus=[gpu()], events=[one]) for one in events)))
    told = []
    until(watch, lambda reading: told.extend(reading.events) or len(told) >= 5)
    assert [(one.at, one.gpu_index, one.xid) for one in told] == [
        (100.0, 3, 79),
        (101.6, 4, 79),
        (101.7, 3, 31),
        (150.0, 3, 79),
        (160.0, 3, None),
    ]
    assert watch.reading().events == []


def test_an_xid_of_the_driver_and_of_the_kernels_log_is_one_event(nvml, watches, tmp_path):
    log = tmp_path / "kmsg"
    log.write_text("")
    watch = watches(replace(QUICK, kernel_log=str(log)))
    until(watch, lambda _: watch.topology() is not None)
    nvml.change({"gpu3.xid": 79})
    told = list(until(watch, lambda reading: reading.events).events)
    at = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    fallen = "NVRM: Xid (PCI:0000:40:00): 79, GPU has fallen off the bus."
    other = "NVRM: Xid (PCI:0000:50:00): 31, pid=7, name=python, Ch 00000008"
    log.write_text(f"3,9,{at},-;{fallen}\n3,10,{at},-;{other}\n")
    told += until(watch, lambda reading: reading.events).events
    assert [(one.gpu_index, one.xid) for one in told] == [(3, 79), (4, 31)]


def test_a_process_that_was_replaced_does_not_tell_the_kernels_log_again(nvml, watches, tmp_path):
    log = tmp_path / "kmsg"
    at = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    log.write_text(f"3,9,{at},-;NVRM: Xid (PCI:0000:50:00): 31, pid=7\n")
    watch = watches(replace(QUICK, kernel_log=str(log)))
    until(watch, lambda reading: reading.events)
    first = watch.pid
    os.kill(first, 9)
    until(watch, lambda reading: watch.pid not in {None, first} and not any(gpu.error for gpu in reading.gpus))
    log.write_text(log.read_text() + f"3,11,{at},-;NVRM: Xid (PCI:0000:60:00): 13, pid=7\n")
    assert [one.xid for one in until(watch, lambda reading: reading.events).events] == [13]


def test_the_process_is_gone_when_its_parent_is_killed(nvml):
    program = (
        "import sys\nfrom remote.telemetry.gpu_watch import GpuWatch\nfrom tests.telemetry.nvml_programs import QUICK\n"
        "watch = GpuWatch(QUICK)\nwatch.start()\nprint(watch.pid, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(RELEASE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    deadline = time.monotonic() + PATIENCE_S
    while is_alive(child):
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


def test_a_suspended_process_is_replaced_and_none_is_left(nvml, watches):
    clock = Clock()
    watch = watches(QUICK, clock=clock)
    until(watch, lambda reading: len(reading.gpus) == 8)
    suspended = watch.pid
    os.kill(suspended, signal.SIGSTOP)
    clock.ahead_s += 6
    until(watch, lambda reading: "fell silent" in reading.detail)
    clock.ahead_s += 2
    until(watch, lambda reading: reading.source == "simulated" and not any(gpu.error for gpu in reading.gpus))
    assert watch.pid not in {None, suspended}
    until(watch, lambda _: not is_alive(suspended))


def test_a_signal_to_all_that_the_recorder_started_is_no_fault_of_the_driver(nvml, watches):
    watch = watches(QUICK)
    before = until(watch, lambda reading: len(reading.gpus) == 8).gpus[0].sampled_at
    pid = watch.pid
    os.kill(pid, signal.SIGTERM)
    reading = until(watch, lambda reading: reading.gpus[0].sampled_at > before + 1)
    assert watch.pid == pid
    assert "died" not in reading.detail


def test_closing_ends_the_process(nvml, watches):
    watch = watches(QUICK)
    until(watch, lambda reading: reading.gpus)
    pid = watch.pid
    watch.close()
    deadline = time.monotonic() + PATIENCE_S
    while is_alive(pid):
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)
    assert watch.pid is None
