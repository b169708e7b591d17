"""Hardware events of the stand-in and of a kernel log that was made up."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from remote.telemetry.kernel_log import KernelLog, parse_fault, parse_record
from tests.telemetry.nvml_programs import QUICK, ReaderProcess

FALLEN = "NVRM: Xid (PCI:0000:40:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SENTENCE = "NVRM: GPU 0000:40:00.0: GPU has fallen off the bus."


def record(sequence: int, text: str, age_s: float = 0.0) -> str:
    at = time.clock_gettime(time.CLOCK_MONOTONIC) - age_s
    return f"3,{sequence},{max(0, int(at * 1e6))},-;{text}\n"


@pytest.fixture
def start(nvml_standin) -> Iterator[Any]:
    running: list[ReaderProcess] = []

    def begin(settings=QUICK) -> ReaderProcess:
        running.append(ReaderProcess(nvml_standin.environment, settings))
        return running[-1]

    yield begin
    for one in running:
        one.end()


def test_records_of_the_kernel_are_understood():
    assert parse_record("6,339,5140900,-;NVRM: loading") == (339, 5140900, "NVRM: loading")
    assert parse_record(" SUBSYSTEM=pci") is None
    assert parse_record("") is None
    assert parse_fault("NVRM: loading NVIDIA UNIX", 1.0) is None
    fault = parse_fault(FALLEN, 1.0)
    assert (fault.bus, fault.xid, fault.text) == ((0, 0x40, 0), 79, FALLEN)
    assert parse_fault(SENTENCE, 1.0)[1:3] == ((0, 0x40, 0), None)
    older = parse_fault("NVRM: Xid (0000:03:00): 14, Channel 00000001", 1.0)
    assert (older.bus, older.xid) == ((0, 3, 0), 14)
    partitioned = parse_fault("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel", 1.0)
    assert partitioned.xid == 94


def test_the_log_is_read_from_an_hour_ago_on_and_each_record_once(tmp_path):
    path = tmp_path / "kmsg"
    age = min(7000.0, time.clock_gettime(time.CLOCK_MONOTONIC) - 1)
    lines = [record(1, FALLEN, age), record(2, "usb 1-1: new"), record(3, SENTENCE), record(4, FALLEN)]
    path.write_text("".join(lines[0 if age > 3600 else 1 :]))
    log = KernelLog(path)
    assert [fault.xid for fault in log.read()] == [79, None], "the number comes before its sentence"
    assert log.read() == []
    with path.open("a") as more:
        more.write(record(5, FALLEN) + " SUBSYSTEM=pci\n")
    (fault,) = log.read()
    assert abs(fault.at - time.time()) < 60
    assert [fault.xid for fault in KernelLog(path, after=4).read()] == [79], "another process goes on where one ended"


def test_a_log_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    assert "cannot be read here" in KernelLog(tmp_path / "nothing").denied

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.open", refuse)
    assert KernelLog(tmp_path).denied == "the kernel log may not be read by this user"


def test_an_xid_is_told_by_nvml_for_its_device(nvml_standin, start):
    reader = start()
    reader.until(lambda report: report["topology"])
    nvml_standin.change({"gpu3.xid": 31})
    (event,) = reader.until(lambda report: report["events"])["events"]
    assert (event["gpu_index"], event["xid"], event["source"]) == (3, 31, "nvml")
    assert event["text"] == "XID 31: an illegal memory access of a kernel"
    nvml_standin.change({"gpu4.double_bit": 1})
    (event,) = reader.until(lambda report: report["events"])["events"]
    assert (event["gpu_index"], event["xid"]) == (4, None)


def test_the_kernels_log_is_told_with_the_index_of_its_bus(nvml_standin, start, tmp_path):
    path = tmp_path / "kmsg"
    path.write_text(record(7, FALLEN))
    reader = start(replace(QUICK, kernel_log=str(path)))
    report = reader.until(lambda report: report["events"])
    (event,) = report["events"]
    assert (event["gpu_index"], event["xid"], event["source"]) == (3, 79, "kernel_log")
    assert "fallen off the bus" in event["text"]
    assert report["kernel_log_after"] == 7
    assert reader.report()["events"] == []


@pytest.mark.parametrize(
    ("is_there", "code", "words"),
    [
        (True, 0, "NVML and the kernel log"),
        (True, 3, "the kernel log; NVML reports no events"),
        (False, 3, "nothing: "),
    ],
)
def test_what_can_be_seen_is_said(nvml_standin, start, tmp_path, is_there, code, words):
    path = tmp_path / "kmsg"
    if is_there:
        path.write_text("")
    nvml_standin.change({"events.error": code})
    topology = start(replace(QUICK, kernel_log=str(path))).until(lambda report: report["topology"])["topology"]
    assert topology["events_from"].startswith(words)


def test_a_scenario_moves_on_by_itself(nvml_standin, start):
    reader = start()
    nvml_standin.play("one_xid")
    nvml_standin.change({"began": time.time() - 18.5})
    (event,) = reader.until(lambda report: report["events"])["events"]
    assert (event["gpu_index"], event["xid"]) == (3, 79)
    assert "lost" in reader.until(lambda report: report["gpus"][3]["error"])["gpus"][3]["error"]
