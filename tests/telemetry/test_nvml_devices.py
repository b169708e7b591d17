"""The readings of eight devices and of what goes wrong with them: the real pynvml on the stand-in of NVML."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_READER = """
import sys
import msgspec
from remote.telemetry.nvml import NvmlReader
reader = NvmlReader()
for _ in sys.stdin:
    print(msgspec.json.encode(reader.read()).decode(), flush=True)
"""
_SAMPLER = """
import sys
from pathlib import Path
import msgspec
from remote.telemetry.sampler import Sampler
sampler = Sampler(Path("/"))
for _ in sys.stdin:
    print(msgspec.json.encode(sampler.sample([])).decode(), flush=True)
"""


class Program:
    """A process with the stand-in that answers each line with a JSON document."""

    def __init__(self, program: str, environment: dict[str, str]) -> None:
        release = str(Path(__file__).resolve().parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": release, **environment},
        )

    def ask(self) -> Any:
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def program(nvml_standin) -> Iterator[Any]:
    running: list[Program] = []

    def start(text: str) -> Program:
        running.append(Program(text, nvml_standin.environment))
        return running[-1]

    yield start
    for one in running:
        one.end()


@pytest.fixture
def reader(program) -> Program:
    return program(_READER)


def test_eight_healthy_devices_are_read_in_full(nvml_standin, reader):
    source, detail, gpus = reader.ask()
    assert (source, detail) == ("nvml", "")
    assert [gpu["gpu_index"] for gpu in gpus] == list(range(8))
    assert len({gpu["uuid"] for gpu in gpus}) == 8
    first = gpus[0]
    assert first["name"].startswith("NVIDIA RTX PRO 6000")
    assert (first["gpu_utilization"], first["memory_used_bytes"], first["memory_total_bytes"]) == (
        0,
        2 << 20,
        102641958912,
    )
    assert first["power_watts"] == pytest.approx(22.5)
    assert first["power_limit_watts"] == pytest.approx(600)
    assert (first["temperature_celsius"], first["sm_clock_hz"]) == (31, 180e6)
    assert first["throttle_reasons"] == [], "idleness is no throttling"


def test_a_busy_device_says_what_limits_it(nvml_standin, reader):
    nvml_standin.play("one_busy")
    busy = reader.ask()[2][2]
    assert busy["gpu_utilization"] == 1
    assert busy["throttle_reasons"] == ["power cap"]
    assert busy["memory_used_bytes"] > 80 << 30


def test_a_device_that_is_lost_meanwhile_keeps_its_name_and_the_others_their_figures(nvml_standin, reader):
    before = reader.ask()[2]
    nvml_standin.play("one_lost")
    source, _, after = reader.ask()
    assert source == "nvml"
    assert after[3]["uuid"] == before[3]["uuid"]
    assert "lost" in after[3]["error"].lower()
    assert after[3]["memory_used_bytes"] is None
    assert [gpu["error"] for gpu in after[:3] + after[4:]] == [None] * 7
    nvml_standin.play("healthy")
    assert reader.ask()[2] == before, "it came back"


def test_what_is_not_supported_is_unknown_and_asked_once(nvml_standin, reader):
    nvml_standin.change({"gpu1.power.error": 3, "clock.error": 13})
    gpus = reader.ask()[2]
    assert gpus[1]["power_watts"] is None
    assert gpus[0]["power_watts"] is not None
    assert {gpu["sm_clock_hz"] for gpu in gpus} == {None}
    assert {gpu["error"] for gpu in gpus} == {None}
    nvml_standin.play("healthy")
    assert reader.ask()[2][1]["power_watts"] is None


@pytest.mark.parametrize(("code", "word"), [(18, "mismatch"), (9, "kernel module"), (999, "unknown")])
def test_a_driver_that_does_not_answer_is_an_error_with_its_cause(nvml_standin, reader, code, word):
    nvml_standin.change({"init": code})
    source, detail, gpus = reader.ask()
    assert (source, gpus) == ("error", [])
    assert word in detail.lower()
    nvml_standin.play("healthy")
    assert reader.ask()[0] == "nvml", "it is asked again once the driver answers"


def test_a_call_that_hangs_freezes_nothing_and_its_devices_say_so(nvml_standin, program):
    sampler = program(_SAMPLER)
    assert sampler.ask()["gpu_source"] == "nvml"
    nvml_standin.play("one_hangs")
    stuck = sampler.ask()
    assert stuck["gpu_source"] == "error"
    assert "has not answered" in stuck["gpu_detail"]
    assert [gpu["gpu_index"] for gpu in stuck["gpus"]] == list(range(8))
    assert stuck["host"]["memory_total_bytes"] > 0
    nvml_standin.play("healthy")
    while (sample := sampler.ask())["gpu_source"] != "nvml":
        pass
    assert len(sample["gpus"]) == 8
