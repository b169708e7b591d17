"""The readings of eight devices and of what goes wrong with them: the real pynvml on the stand-in of NVML."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from console.embedded.nvml_standin import scenarios
from tests.telemetry.nvml_programs import QUICK, ReaderProcess


@pytest.fixture
def start(nvml_standin) -> Iterator[Any]:
    running: list[ReaderProcess] = []

    def begin(settings=QUICK) -> ReaderProcess:
        running.append(ReaderProcess(nvml_standin.environment, settings))
        return running[-1]

    yield begin
    for one in running:
        one.end()


@pytest.fixture
def reader(start) -> ReaderProcess:
    return start()


def errors(report) -> list[int]:
    return [gpu["gpu_index"] for gpu in report["gpus"] if gpu["error"]]


def test_eight_healthy_devices_are_read_in_full(reader):
    report = reader.full()
    assert (report["source"], report["detail"]) == ("simulated", "")
    assert [gpu["gpu_index"] for gpu in report["gpus"]] == list(range(8))
    assert len({gpu["uuid"] for gpu in report["gpus"]}) == 8
    first = report["gpus"][0]
    assert first["name"].startswith("NVIDIA RTX PRO 6000")
    assert {
        key: first[key]
        for key in (
            "gpu_utilization",
            "memory_utilization",
            "memory_used_bytes",
            "memory_total_bytes",
            "power_watts",
            "power_limit_watts",
            "temperature_celsius",
            "temperature_margin_celsius",
            "sm_clock_hz",
            "memory_clock_hz",
            "throttle_reasons",
        )
    } == {
        "gpu_utilization": 0,
        "memory_utilization": 0,
        "memory_used_bytes": 2 << 20,
        "memory_total_bytes": 102641958912,
        "power_watts": 22.5,
        "power_limit_watts": 600,
        "temperature_celsius": 31,
        "temperature_margin_celsius": 59,
        "sm_clock_hz": 180e6,
        "memory_clock_hz": 405e6,
        "throttle_reasons": [],
    }
    health = first["health"]
    assert (health["pcie_generation"], health["pcie_width"], health["pcie_width_max"]) == (5, 16, 16)
    assert (health["ecc_corrected"], health["recovery_action"], health["processes"]) == (0, "none", [])
    assert health["nvlinks_active"] is None, "this device has no NVLink"


@pytest.mark.parametrize("name", sorted(set(scenarios()) - {"driver_mismatch"}))
def test_every_scenario_can_be_read(nvml_standin, start, name):
    nvml_standin.play(name)
    report = start().full()
    assert report["source"] == "simulated"
    assert len(report["gpus"]) == 8


def test_a_busy_device_says_what_limits_it_and_who_uses_it(nvml_standin, start):
    nvml_standin.play("one_busy")
    busy = start().full()["gpus"][2]
    assert busy["gpu_utilization"] == 1
    assert busy["throttle_reasons"] == ["power cap"]
    assert busy["memory_used_bytes"] > 80 << 30
    assert [(one["pid"], one["memory_bytes"]) for one in busy["health"]["processes"]] == [(4194303, 80 << 30)]


def test_rates_are_differences_of_counters_and_a_counter_that_restarts_gives_none(nvml_standin, reader):
    nvml_standin.change({"pcie.tx": "0 + 3000000000/s", "pcie.rx": 5, "energy": 7000, "pcie.rx.error": 0})
    gpu = reader.until(lambda report: (report["gpus"][0].get("pcie_tx_bytes_per_s") or 0) > 1e9)["gpus"][0]
    assert 2e9 < gpu["pcie_tx_bytes_per_s"] < 4e9
    assert gpu["pcie_rx_bytes_per_s"] == 0
    assert gpu["energy_joules"] == 7
    nvml_standin.change({"pcie.tx": 0})
    reader.until(lambda report: report["gpus"][0]["pcie_tx_bytes_per_s"] is None)
    reader.until(lambda report: report["gpus"][0]["pcie_tx_bytes_per_s"] == 0)


def test_one_field_that_fails_leaves_the_other(nvml_standin, start):
    nvml_standin.change({"gpu0.pcie.tx.error": 3, "gpu1.pcie.tx.error": 999, "pcie.rx": 4})
    reader = start()
    report = reader.until(lambda report: report["gpus"][1].get("pcie_rx_bytes_per_s") == 0)
    assert [report["gpus"][index]["pcie_tx_bytes_per_s"] for index in (0, 1)] == [None, None]
    nvml_standin.change({"gpu0.pcie.tx.error": 0, "gpu1.pcie.tx.error": 0, "pcie.tx": 4})
    report = reader.until(lambda report: report["gpus"][1]["pcie_tx_bytes_per_s"] == 0)
    assert report["gpus"][0]["pcie_tx_bytes_per_s"] is None, "what is not supported is not asked for again"


def test_a_counter_of_32_bits_is_unknown_for_it_wraps_within_a_second(nvml_standin, start):
    nvml_standin.change({"pcie.type": 1, "gpu1.pcie.type": 3, "pcie.tx": 1, "pcie.rx": 1})
    report = start().until(lambda report: report["gpus"][1].get("pcie_tx_bytes_per_s") == 0)
    assert report["gpus"][0]["pcie_tx_bytes_per_s"] is None


def test_nvlinks_are_counted_and_their_throughput_read_where_there_are_some(nvml_standin, start):
    nvml_standin.change({"gpu0.nvlinks": 4, "nvlink.tx": "0 + 1000000/s", "nvlink.rx": 0, "gpu1.nvlinks": 0})
    report = start().until(lambda report: (report["gpus"][0].get("nvlink_tx_bytes_per_s") or 0) > 0)
    assert 0.5e9 < report["gpus"][0]["nvlink_tx_bytes_per_s"] < 2e9, "KiB"
    assert [report["gpus"][index]["health"]["nvlinks_active"] for index in range(3)] == [4, 0, None]
    assert report["gpus"][1]["nvlink_tx_bytes_per_s"] is None


def test_health_follows_the_device(nvml_standin, reader):
    reader.full()
    nvml_standin.change(
        {
            "gpu4.ecc.corrected": 12,
            "gpu4.ecc.uncorrected": 2,
            "gpu4.rows.pending": 1,
            "gpu4.recovery": 1,
            "gpu4.pcie.width": 4,
            "gpu4.pcie.replays": 9,
        }
    )
    health = reader.until(lambda report: report["gpus"][4]["health"]["ecc_corrected"])["gpus"][4]["health"]
    assert (health["ecc_corrected"], health["ecc_uncorrected"], health["remapping_pending"]) == (12, 2, True)
    assert (health["recovery_action"], health["pcie_width"], health["pcie_replays"]) == ("reset", 4, 9)


def test_a_device_that_is_lost_meanwhile_keeps_its_name_and_the_others_their_figures(nvml_standin, reader):
    before = reader.full()["gpus"]
    nvml_standin.play("one_lost")
    after = reader.until(errors)["gpus"]
    assert after[3]["uuid"] == before[3]["uuid"]
    assert "lost" in after[3]["error"].lower()
    assert after[3]["memory_used_bytes"] is None
    assert after[3]["sampled_at"] >= before[3]["sampled_at"]
    assert [gpu["error"] for gpu in after[:3] + after[4:]] == [None] * 7
    nvml_standin.play("healthy")
    assert reader.until(lambda report: not errors(report))["gpus"][3]["memory_used_bytes"] == 2 << 20, "it came back"


def test_a_device_that_needs_a_reset_says_so(nvml_standin, reader):
    nvml_standin.change({"gpu3.power.error": 16})
    assert "requires a reset" in reader.until(errors)["gpus"][3]["error"]


def test_what_is_not_supported_is_unknown_and_asked_once(nvml_standin, start, tmp_path):
    calls = tmp_path / "calls"
    nvml_standin.change(
        {"calls": calls, "gpu1.power.error": 3, "clock.error": 13, "gpu1.processes.error": 4, "gpu2.power.error": 999}
    )
    reader = start()
    gpus = reader.full()["gpus"]
    for _ in range(8):
        reader.report()
    assert gpus[1]["power_watts"] is None
    assert gpus[0]["power_watts"] is not None
    assert {gpu["sm_clock_hz"] for gpu in gpus} == {None}
    assert {gpu["error"] for gpu in gpus} == {None}
    assert gpus[1]["health"]["processes"] is None
    asked = Counter(calls.read_text().split())
    assert (asked["gpu1.power"], asked["gpu0.clock"], asked["gpu1.processes"]) == (1, 1, 1)
    assert asked["gpu0.power"] > 5
    assert asked["gpu2.power"] > 5, "what failed otherwise is asked again"
    assert asked["gpu0.pcie.throughput"] == 0, "it takes 20 ms"


def test_another_device_at_the_same_index_is_asked_everything_anew(nvml_standin, reader):
    nvml_standin.change({"gpu1.power.error": 3})
    reader.until(lambda report: report["gpus"][1].get("power_watts", 0) is None)
    nvml_standin.change({"gpu1.error": 15, "gpu1.power.error": 0})
    reader.until(errors)
    nvml_standin.change({"gpu1.error": 0})
    assert reader.until(lambda report: not errors(report))["gpus"][1]["power_watts"] is None, "the same device"
    nvml_standin.change({"gpu1.error": 15})
    reader.until(errors)
    nvml_standin.change({"gpu1.error": 0, "gpu1.uuid": "GPU-another"})
    assert reader.until(lambda report: not errors(report))["gpus"][1]["power_watts"] is not None


def test_an_older_driver_tells_less(nvml_standin, start):
    nvml_standin.change({"memory.error": 13, "temperature.margin.error": 13, "fields.error": 13, "events.error": 3})
    reader = start()
    gpu = reader.full()["gpus"][0]
    assert gpu["error"] is None
    assert gpu["memory_total_bytes"] == 102641958912
    assert (gpu["temperature_margin_celsius"], gpu["pcie_tx_bytes_per_s"]) == (None, None)
    assert gpu["health"]["recovery_action"] is None


def test_a_call_that_hangs_costs_its_device_alone_and_its_age_is_told(nvml_standin, reader):
    before = reader.full()
    nvml_standin.play("one_hangs")
    stuck = reader.until(lambda report: errors(report) == [5])
    assert "has not answered for this device for" in stuck["gpus"][5]["error"]
    assert stuck["gpus"][5]["uuid"] == before["gpus"][5]["uuid"]
    assert stuck["gpus"][5]["gpu_utilization"] is None
    assert stuck["gpus"][5]["sampled_at"] >= before["gpus"][5]["sampled_at"]
    for _ in range(30):
        report = reader.report()
        assert errors(report) == [5]
    others = [gpu["sampled_at"] for gpu in report["gpus"] if gpu["gpu_index"] != 5]
    assert min(others) > stuck["gpus"][0]["sampled_at"], "the others are read on"
    nvml_standin.play("healthy")
    assert reader.until(lambda report: not errors(report))["gpus"][5]["gpu_utilization"] == 0


def test_several_devices_that_hang_leave_the_others(nvml_standin, start):
    nvml_standin.change({f"gpu{index}.utilization.hang": 1 for index in (0, 2, 7)})
    report = start().until(lambda report: errors(report) == [0, 2, 7] and "for 0 s" not in str(report))
    assert report["gpus"][1]["gpu_utilization"] == 0
    nvml_standin.play("healthy")


@pytest.mark.parametrize(("code", "word"), [(18, "reboot"), (9, "kernel module"), (999, "unknown")])
def test_a_driver_that_does_not_answer_is_an_error_with_its_cause_and_asked_again(nvml_standin, start, code, word):
    nvml_standin.change({"init": code})
    reader = start()
    report = reader.report()
    assert (report["source"], report["gpus"]) == ("error", [])
    assert word in report["detail"].lower()
    nvml_standin.play("healthy")
    reader.until(lambda report: report["source"] == "simulated")


def test_no_device_is_said_in_a_sentence(nvml_standin, start):
    nvml_standin.change({"devices": 0})
    report = start().report()
    assert report["gpus"] == []
    assert "knows no device" in report["detail"]


def test_when_every_device_is_lost_the_process_makes_room_for_a_new_one(nvml_standin, start):
    nvml_standin.change({"error": 15})
    process = start(replace(QUICK, period_s=0.01)).process
    assert b"lost" in process.stdout.read()
    assert process.wait(60) == 0


def test_a_driver_that_calls_itself_nothing_of_the_kind_is_no_simulation(nvml_standin, start):
    nvml_standin.change({"driver": "580.95.05"})
    assert start().full()["source"] == "nvml"


def test_the_process_ends_with_its_parent_even_within_a_call_that_hangs(nvml_standin, start):
    nvml_standin.change({"init.hang": 1})
    reader = start()
    reader.process.stdin.close()
    assert reader.process.wait(60) == 0
    nvml_standin.change({"init.hang": 0})


def test_connections_are_told_once(nvml_standin, start):
    nvml_standin.change({"gpu0.p2p": 3})
    reader = start()
    topology = reader.until(lambda report: report["topology"])["topology"]
    assert (topology["driver_version"], topology["cuda_version"]) == ("580.95.05 (simulated)", "13.0")
    assert topology["events_from"].startswith("NVML; the kernel log cannot be read here")
    assert len(topology["paths"]) == 28
    paths = {(path["first"], path["second"]): (path["ancestor"], path["peer_to_peer"]) for path in topology["paths"]}
    assert paths[1, 2] == ("same host bridge", "ok")
    assert paths[0, 4] == ("across NUMA nodes", "not supported by the topology")
    assert all(reader.report()["topology"] is None for _ in range(3))
