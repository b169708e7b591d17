"""What NVML's answers mean, in words; pure."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from remote.telemetry.gpu_reading import lost_gpu
from remote.telemetry.nvml import (
    NO_DRIVER,
    NO_LIBRARY,
    VERSION_MISMATCH,
    device_error_text,
    recovery_text,
    throttle_reasons,
    why_unreachable,
)
from remote.telemetry.xid import meaning_of


class Fault(Exception):
    def __init__(self, value):
        super().__init__(f"NVML {value}")
        self.value = value


def has_nvml() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def first_report(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        line = child.stdout.readline().decode()
        child.stdin.close()
    return line


@pytest.mark.skipif(has_nvml(), reason="this machine has an NVIDIA driver")
def test_without_a_driver_there_is_none_and_a_sentence_says_so():
    report = first_report("from remote.telemetry.nvml_reader import main; main([])")
    assert '"source":"none"' in report
    assert "libnvidia-ml.so.1" in report


def test_without_the_package_a_sentence_says_so():
    report = first_report(
        "import sys; sys.modules['pynvml'] = None; import remote.telemetry.nvml_reader as r; r.main([])"
    )
    assert '"source":"none"' in report
    assert "nvidia-ml-py is not installed" in report


def test_throttling_names_causes_and_not_idleness():
    assert throttle_reasons(0x1 | 0x2 | 0x10 | 0x100) == []
    assert throttle_reasons(0x4 | 0x40) == ["power cap", "thermal (hardware)"]
    assert throttle_reasons(None) == []


def test_advice_and_faults_are_words():
    assert [recovery_text(action) for action in (0, 1, 2, 3, 4, 99)] == [
        "none",
        "reset",
        "reboot",
        "drain peer-to-peer",
        "drain and reset",
        "recovery action 99",
    ]
    assert "reset" in device_error_text(Fault(16))
    assert "lost" in device_error_text(Fault(15))
    assert "fallen off the bus" in meaning_of(79).text


@pytest.mark.parametrize(
    ("code", "words"), [(NO_LIBRARY, "missing"), (NO_DRIVER, "not loaded"), (VERSION_MISMATCH, "reboot"), (999, "999")]
)
def test_a_driver_that_cannot_be_reached_has_a_reason(code, words):
    assert words in why_unreachable(Fault(code))


def test_a_lost_device_keeps_its_name_and_says_why():
    gpu = lost_gpu(3, ("RTX PRO 6000", "GPU-1"), "GPU is lost", sampled_at=12.0)
    assert (gpu.gpu_index, gpu.name, gpu.error, gpu.gpu_utilization) == (3, "RTX PRO 6000", "GPU is lost", None)
    assert gpu.sampled_at == 12.0
