"""The host as psutil sees it."""

from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.telemetry.host import CoreTimes, HostReader, core_utilization, read_cpu_model


@given(busy=st.floats(0, 100), idle=st.floats(0.001, 100), start=st.floats(0, 1e5))
def test_utilization_is_the_busy_share_of_the_time_that_passed(busy, idle, start):
    before, after = CoreTimes(start, 2 * start), CoreTimes(start + busy, 2 * start + busy + idle)
    assert core_utilization([before], [after]) == [pytest.approx(busy / (busy + idle), abs=1e-3)]


def test_a_core_that_appears_or_stands_still_makes_it_unknown():
    core = CoreTimes(1.0, 2.0)
    assert core_utilization([], [core]) == []
    assert core_utilization([core], [core]) == []


def test_the_processor_is_named_or_its_machine_type_is(tmp_path: Path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some Processor @ 2 GHz\nmodel name\t: other\n")
    assert read_cpu_model(cpuinfo) == "Some Processor @ 2 GHz"
    assert read_cpu_model(tmp_path / "missing")


def test_the_second_reading_knows_the_rates():
    reader = HostReader()
    first = reader.read()
    assert first.cpu_utilization == []
    assert first.network_rx_bytes_per_s is None
    while not (second := reader.read()).cpu_utilization:
        pass
    assert len(second.cpu_utilization) == len(psutil.cpu_times(percpu=True))
    assert all(0 <= share <= 1 for share in second.cpu_utilization)
    assert 0 < second.memory_used_bytes < second.memory_total_bytes
