"""NVML through the real pynvml, with or without a driver on this machine."""

import ctypes

import pytest

from remote.telemetry.nvml import NvmlReader, lost_gpu, scaled, throttle_reasons


def has_nvml() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_nvml(), reason="this machine has an NVIDIA driver")
def test_without_a_driver_there_is_none_and_a_sentence_says_so():
    reading = NvmlReader().read()
    assert (reading.source, reading.gpus) == ("none", [])
    assert "libnvidia-ml.so.1" in reading.detail


@pytest.mark.skipif(not has_nvml(), reason="this machine has no NVIDIA driver")
def test_with_a_driver_every_device_is_read():
    reading = NvmlReader().read()
    assert reading.source == "nvml"
    for gpu in reading.gpus:
        assert gpu.error is None
        assert gpu.uuid.startswith("GPU-")
        assert gpu.memory_total_bytes is None or gpu.memory_total_bytes > 1 << 30


def test_without_the_package_a_sentence_says_so(monkeypatch):
    monkeypatch.setattr("remote.telemetry.nvml.pynvml", None)
    reading = NvmlReader().read()
    assert (reading.source, reading.gpus) == ("none", [])
    assert "nvidia-ml-py is not installed" in reading.detail


def test_throttling_names_causes_and_not_idleness():
    assert throttle_reasons(0x1 | 0x2 | 0x10 | 0x100) == []
    assert throttle_reasons(0x4 | 0x40) == ["power cap", "thermal (hardware)"]
    assert throttle_reasons(None) == []


def test_what_is_unknown_stays_unknown_in_other_units():
    assert scaled(None, 1e-3) is None
    assert scaled(299_500, 1e-3) == pytest.approx(299.5)


def test_a_lost_device_keeps_its_name_and_says_why():
    gpu = lost_gpu(3, ("RTX PRO 6000", "GPU-1"), "GPU is lost")
    assert (gpu.gpu_index, gpu.name, gpu.error, gpu.gpu_utilization) == (3, "RTX PRO 6000", "GPU is lost", None)
