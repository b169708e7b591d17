"""One reading of everything, whatever hangs."""

import threading
from pathlib import Path

import pytest

from remote.protocol.codec import decode_host_frame, encode_line
from remote.protocol.frames import Telemetry
from remote.protocol.telemetry import GpuEvent
from remote.telemetry.deadline import Deadline, NoAnswer
from remote.telemetry.engine import EngineEndpoint
from remote.telemetry.gpu_reading import GpuReading, lost_gpu
from remote.telemetry.gpu_watch import GpuWatch
from remote.telemetry.sampler import Sampler


class Devices(GpuWatch):
    """Devices that say the same at every reading."""

    def __init__(self, reading: GpuReading) -> None:
        super().__init__()
        self._always = reading

    def start(self) -> None:
        pass

    def reading(self) -> GpuReading:
        return self._always


def test_a_reading_travels(tmp_path: Path):
    sampler = Sampler(tmp_path, Devices(GpuReading("none", "", [])))
    frame = Telemetry(sample=sampler.sample([]))
    assert decode_host_frame(encode_line(frame)) == frame
    assert frame.sample.mounts
    assert frame.sample.engines == []


def test_a_server_that_is_gone_is_shown_as_unknown(tmp_path: Path):
    sampler = Sampler(tmp_path, Devices(GpuReading("none", "", [])))
    (engine,) = sampler.sample([EngineEndpoint("server-1", "sglang", "http://127.0.0.1:1")]).engines
    assert (engine.job_id, engine.decode_tokens_per_s, engine.running_requests) == ("server-1", None, None)


def test_the_devices_and_their_events_are_those_of_the_process_that_reads_them(tmp_path: Path):
    event = GpuEvent(at=1.0, gpu_index=0, xid=79, text="XID 79", source="nvml")
    sampler = Sampler(tmp_path, Devices(GpuReading("error", "why", [lost_gpu(0, ("card", "GPU-a"), "lost")], [event])))
    sample = sampler.sample([])
    assert (sample.gpu_source, sample.gpu_detail) == ("error", "why")
    assert [gpu.uuid for gpu in sample.gpus] == ["GPU-a"]
    assert sample.gpu_events == [event]
    assert sample.mounts


def test_a_slow_call_is_asked_once_and_its_late_answer_is_not_lost():
    released, calls = threading.Event(), []

    def read() -> int:
        calls.append(1)
        released.wait()
        return len(calls)

    deadline = Deadline(read)
    deadline.begin()
    with pytest.raises(NoAnswer):
        deadline.collect(0.01)
    deadline.begin()
    released.set()
    assert deadline.collect(30) == 1
    deadline.begin()
    assert deadline.collect(30) == 2


def test_an_error_is_raised_where_it_was_asked_for():
    def read() -> int:
        raise OSError("gone")

    deadline = Deadline(read)
    deadline.begin()
    with pytest.raises(OSError, match="gone"):
        deadline.collect(30)
