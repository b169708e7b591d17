"""Who uses the devices, asked in a process of its own of the stand-in of NVML."""

import subprocess
import sys

import pytest

from remote.telemetry import occupancy
from remote.telemetry.occupancy import DeviceProcess, ask_occupancy


@pytest.fixture
def nvml(nvml_standin, monkeypatch):
    nvml_standin.use(monkeypatch)
    return nvml_standin


def test_idle_devices_have_nobody(nvml):
    found = ask_occupancy()
    assert found.detail == ""
    assert [device.index for device in found.devices] == list(range(8))
    assert {device.minor for device in found.devices} == set(range(8))
    assert {device.error for device in found.devices} == {None}
    assert not any(device.processes for device in found.devices)
    assert found.devices[0].memory_used_bytes == 2 << 20


def test_a_busy_device_has_its_process_and_its_memory(nvml):
    nvml.play("one_busy")
    busy = ask_occupancy().devices[2]
    assert busy.processes == [DeviceProcess(4194303, 80 << 30)]
    assert busy.memory_used_bytes > 80 << 30


def test_many_processes_on_one_device_are_all_told(nvml):
    nvml.change({"gpu0.processes": ", ".join(f"{pid}:{pid << 20}" for pid in range(101, 120))})
    assert [process.pid for process in ask_occupancy().devices[0].processes] == list(range(101, 120))


def test_a_lost_device_is_an_error_of_its_own(nvml):
    nvml.play("one_lost")
    devices = ask_occupancy().devices
    assert "lost" in devices[3].error.lower()
    assert [device.index for device in devices if device.error is None] == [0, 1, 2, 4, 5, 6, 7]


def test_a_call_that_hangs_costs_its_device_alone(nvml, monkeypatch):
    nvml.play("one_hangs")
    short = "import remote.telemetry.occupancy as o, msgspec, sys, os; o._CALL_TIMEOUT_S = 0.5\n"
    program = (
        short + "sys.stdout.buffer.write(msgspec.json.encode(o.read_occupancy())); sys.stdout.flush(); os._exit(0)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    assert b"has not answered" in answer
    assert answer.count(b'"error":null') == 7


def test_a_driver_that_stops_the_asker_itself_is_given_up(nvml, monkeypatch):
    monkeypatch.setattr(occupancy, "_START_TIMEOUT_S", 0.2)
    monkeypatch.setattr(occupancy, "_CALL_TIMEOUT_S", 0.0)
    nvml.change({"init.hang": 1})
    assert "does not answer" in ask_occupancy().detail
    nvml.change({"init.hang": 0})


def test_the_memory_of_an_old_driver_is_taken_without_its_reserve(nvml):
    nvml.change({"memory.error": 13, "gpu1.memory.used": 5 << 30, "memory.reserved": 1 << 30})
    devices = ask_occupancy().devices
    assert (devices[0].memory_used_bytes, devices[1].memory_used_bytes) == (2 << 20, 5 << 30)


def test_what_may_not_be_asked_is_unknown(nvml):
    nvml.change({"processes.error": 4, "gpu0.memory.error": 3, "gpu0.memory.v1.error": 3, "minor.error": 3})
    first, second = ask_occupancy().devices[:2]
    assert (first.memory_used_bytes, first.minor, first.processes, first.error) == (None, None, [], None)
    assert second.memory_used_bytes == 2 << 20


@pytest.mark.parametrize(("changes", "words"), [({"init": 18}, "mismatch"), ({"devices": 0}, "knows no device")])
def test_no_device_has_a_reason(nvml, changes, words):
    nvml.change(changes)
    found = ask_occupancy()
    assert found.devices == []
    assert words in found.detail.lower()
