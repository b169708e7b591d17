"""Readings go on when the disk of the root is full, which is when they are needed most."""

import sys
import time

from remote.jobs.store import JobStore
from remote.link.telemetry import TelemetrySource
from remote.protocol.telemetry import TelemetrySample
from tests.faults.small_disks import SmallDisk
from tests.jobs.workshop import RELEASE

PATIENCE_S = 60.0


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def free_bytes(sample: TelemetrySample, disk: SmallDisk) -> int:
    return next(mount.free_bytes for mount in sample.mounts if mount.path == str(disk.path))


def recorded(source: TelemetrySource) -> list[float]:
    return [sample.sampled_at for sample in source.history(0.0, None, 1.0).samples]


def test_a_full_disk_costs_the_recording_and_not_the_reading(small_disk: SmallDisk):
    store = JobStore(small_disk.path / "root", RELEASE, sys.executable)
    source = TelemetrySource(store)
    source.read()
    small_disk.fill()
    until(lambda: free_bytes(source.read(), small_disk) == 0)
    # The last block of the ring has room for a few samples more.
    during = until(lambda: (sample := source.read()).sampled_at not in recorded(source) and sample)
    small_disk.make_room()
    after = until(lambda: (sample := source.read()) and free_bytes(sample, small_disk) and sample)
    until(lambda: recorded(source)[-1] >= after.sampled_at)
    assert recorded(source) == sorted(recorded(source))
    assert during.sampled_at not in recorded(source)
