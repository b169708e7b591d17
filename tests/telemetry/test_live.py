"""The newest reading: replaced whole, there when the disk is full, and never half a record."""

import errno
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.protocol.telemetry import GpuTopology, TelemetrySample
from remote.telemetry.live import LiveReadings, Slot
from tests.telemetry.readings import T0, gpu, sample

TOPOLOGY = GpuTopology(driver_version="1", cuda_version="13.0", paths=[], events_from="NVML")


def test_a_reading_is_handed_out_once(tmp_path):
    writer, reader = LiveReadings([tmp_path]), LiveReadings([tmp_path])
    assert reader.newer() is None
    assert reader.age_s() is None
    writer.open()
    writer.publish(sample(T0))
    assert reader.newer() == sample(T0)
    assert reader.newer() is None
    writer.publish(sample(T0 + 1))
    assert reader.newer().sampled_at == T0 + 1
    assert LiveReadings([tmp_path]).newer().sampled_at == T0 + 1
    writer.publish_topology(TOPOLOGY)
    assert reader.topology() == TOPOLOGY


def test_an_old_reading_does_not_look_new_because_a_recorder_begins(tmp_path):
    before = LiveReadings([tmp_path])
    before.open()
    before.publish(sample(T0))
    os.utime(tmp_path / "latest", (T0, T0))
    reader = LiveReadings([tmp_path])
    assert reader.newer() == sample(T0)
    LiveReadings([tmp_path]).open()
    assert reader.newer() is None
    assert reader.age_s() > 3600


def test_a_writer_without_room_takes_the_next_directory_and_readers_find_it(tmp_path, monkeypatch):
    full, roomy = tmp_path / "full", tmp_path / "roomy"
    full.mkdir()
    roomy.mkdir()
    stale = LiveReadings([full])
    stale.open()
    stale.publish(sample(T0))
    os.utime(full / "latest", (T0, T0))
    reserve = os.posix_fallocate

    def refuse(descriptor, offset, size):
        if str(full) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    writer = LiveReadings([full, roomy])
    writer.open()
    writer.publish(sample(T0 + 9))
    assert LiveReadings([full, roomy]).newer().sampled_at == T0 + 9
    with pytest.raises(OSError, match="No space left"):
        LiveReadings([full]).open()


def test_a_slot_has_its_blocks_from_the_beginning(tmp_path):
    slot = Slot(tmp_path / "slot", TelemetrySample)
    slot.reserve()
    blocks = (tmp_path / "slot").stat().st_blocks
    assert blocks * 512 >= 256 << 10
    slot.write(sample(T0, gpus=[gpu(index) for index in range(64)]))
    assert (tmp_path / "slot").stat().st_blocks == blocks
    assert (tmp_path / "slot").stat().st_mode & 0o077 == 0


@given(st.binary(max_size=200))
@settings(max_examples=60)
def test_what_is_no_record_is_none(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("slot") / "slot"
    path.write_bytes(data)
    assert Slot(path, TelemetrySample).read() is None


def test_half_a_record_is_never_read(tmp_path):
    """A writer that replaces as fast as it can, and a reader that takes only what is whole."""
    writer, reader = Slot(tmp_path / "slot", TelemetrySample), Slot(tmp_path / "slot", TelemetrySample)
    writer.reserve()
    sizes = [sample(T0 + count, gpus=[gpu(index) for index in range(count)]) for count in (1, 40, 3, 64)]
    writer.write(sizes[0])
    over = threading.Event()

    def replace() -> None:
        while not over.is_set():
            for size in sizes:
                writer.write(size)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        found = [reader.read() for _ in range(500)]
    finally:
        over.set()
        thread.join()
    whole = [one for one in found if one is not None]
    assert whole
    assert all(one in sizes for one in whole)


def test_who_wants_readings_is_known_by_age(tmp_path):
    live = LiveReadings([tmp_path])
    assert live.wanted_age_s() is None
    live.want()
    assert 0 <= live.wanted_age_s() < 3600
