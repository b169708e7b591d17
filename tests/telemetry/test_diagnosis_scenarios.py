"""The stand-in's scenarios as NVML tells them, shown to the diagnostician for some minutes of a job on all eight devices."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from remote.telemetry.gpu_reading import GpuReading
from remote.telemetry.gpu_watch import GpuWatch
from tests.telemetry.diagnosis_samples import JOB, START, Watch, job
from tests.telemetry.nvml_programs import QUICK

PATIENCE_S = 60.0


@pytest.fixture
def devices(nvml_standin, monkeypatch) -> Iterator[GpuWatch]:
    """The stand-in's devices as they are read; the scenario is still to be played."""
    nvml_standin.use(monkeypatch)
    watch = GpuWatch(QUICK)
    yield watch
    watch.close()


def read(devices: GpuWatch, holds: Callable[[GpuReading], object]) -> GpuReading:
    """A reading in which `holds`."""
    devices.start()
    deadline = time.monotonic() + PATIENCE_S
    while not holds(reading := devices.reading()):
        assert time.monotonic() < deadline, f"waited in vain: {reading}"
        time.sleep(0.01)
    return reading


def has_health(reading: GpuReading) -> bool:
    return bool(reading.gpus) and all(gpu.health is not None for gpu in reading.gpus)


def is_broken(reading: GpuReading) -> bool:
    errors = [gpu.error for gpu in reading.gpus if gpu.error is not None]
    return bool(errors) and not any(error.endswith(" yet") for error in errors)


def is_refused(reading: GpuReading) -> bool:
    return reading.source == "error"


STEPS = {"progress_age_s": 1.0}
STANDS = {"progress_age_s": 50.0}


@pytest.mark.parametrize(
    ("scenario", "holds", "progress", "expected"),
    [
        ("training", has_health, STEPS, set()),
        ("one_throttled", has_health, STEPS, {("throttled", "GPU 2")}),
        ("one_idle", has_health, STEPS, {("gpu_idle", "GPU 6")}),
        ("spinning", has_health, STANDS, {("busy_not_working", JOB)}),
        ("pcie_degraded", has_health, STEPS, {("hardware", "GPU 1")}),
        ("one_lost", is_broken, STEPS, {("hardware", "GPU 3"), ("gpu_idle", JOB)}),
        ("one_hangs", is_broken, STEPS, {("hardware", "GPU 5"), ("gpu_idle", JOB)}),
        ("driver_mismatch", is_refused, STEPS, {("hardware", "NVIDIA driver")}),
    ],
)
def test_a_scenario_is_told(nvml_standin, devices, scenario: str, holds: Any, progress: dict, expected: set):
    nvml_standin.play(scenario)
    reading = read(devices, holds)
    watch = Watch()

    def shown(second: float) -> dict[str, Any]:
        gpus = [replace(gpu, owner_job_id=JOB, sampled_at=START + second) for gpu in reading.gpus]
        return {"gpus": gpus, "gpu_source": reading.source, "gpu_detail": reading.detail}

    told = watch.show(330, shown, jobs=[job(**progress)])
    assert {(one.code, one.subject) for one in told} == expected


def test_an_xid_of_the_driver_is_told(nvml_standin, devices):
    nvml_standin.play("training")
    read(devices, lambda reading: devices.topology())
    nvml_standin.change({"gpu3.xid": 79})
    reading = read(devices, lambda reading: reading.events)
    watch = Watch()
    watch.show(1, gpu_events=[replace(event, at=START) for event in reading.events])
    told = watch.only("hardware")
    assert (told.subject, told.severity) == ("GPU 3", "error")
    assert "XID 79" in told.summary
