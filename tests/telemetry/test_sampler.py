"""One reading of everything, whatever hangs."""

import threading
from pathlib import Path

import pytest

from remote.protocol.codec import decode_host_frame, encode_line
from remote.protocol.frames import Telemetry
from remote.telemetry.deadline import Deadline, NoAnswer
from remote.telemetry.engine import EngineEndpoint
from remote.telemetry.nvml import GpuReading, lost_gpu
from remote.telemetry.sampler import Sampler


def test_a_reading_travels(tmp_path: Path):
    sampler = Sampler(tmp_path)
    frame = Telemetry(sample=sampler.sample([]))
    assert decode_host_frame(encode_line(frame)) == frame
    assert frame.sample.mounts
    assert frame.sample.engines == []


def test_a_server_that_is_gone_is_shown_as_unknown(tmp_path: Path):
    sampler = Sampler(tmp_path)
    (engine,) = sampler.sample([EngineEndpoint("server-1", "sglang", "http://127.0.0.1:1")]).engines
    assert (engine.job_id, engine.decode_tokens_per_s, engine.running_requests) == ("server-1", None, None)


def test_a_stuck_driver_blocks_nobody_and_is_named(tmp_path: Path):
    released = threading.Event()
    answers = iter([lambda: GpuReading("nvml", "", [lost_gpu(0, ("card", "GPU-a"), "")]), released.wait])
    sampler = Sampler(tmp_path)
    sampler._gpus = Deadline(lambda: next(answers)())  # noqa: PLW0108 - another answer at each call
    assert sampler.sample([]).gpu_source == "nvml"
    stuck = sampler.sample([])
    again = sampler.sample([])
    released.set()
    for sample in (stuck, again):
        assert sample.gpu_source == "error"
        assert "has not answered" in sample.gpu_detail
        assert [gpu.uuid for gpu in sample.gpus] == ["GPU-a"]
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
