"""Mounts of ROOT and of the runs."""

import os
from pathlib import Path

from remote.telemetry.mounts import MountReader, mount_point


def test_a_path_that_is_not_there_yet_lies_on_the_mount_of_its_parents(tmp_path: Path):
    assert mount_point(tmp_path / "a/b/c") == mount_point(tmp_path)
    assert os.path.ismount(mount_point(tmp_path))


def test_runs_on_one_mount_are_one_reading(tmp_path: Path):
    (tmp_path / "runs/one").mkdir(parents=True)
    (tmp_path / "runs/two").mkdir()
    (mount,) = MountReader(tmp_path).read()
    found = os.statvfs(tmp_path)
    assert mount.path == str(mount_point(tmp_path))
    assert mount.total_bytes == found.f_blocks * found.f_frsize
    assert mount.used_bytes + mount.free_bytes <= mount.total_bytes


def test_a_run_elsewhere_adds_its_mount(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/elsewhere").symlink_to("/proc/self")
    paths = [mount.path for mount in MountReader(tmp_path).read()]
    assert paths == [str(mount_point(tmp_path)), "/proc"]


def test_the_fill_rate_is_unknown_until_time_has_passed(tmp_path: Path):
    now = [0.0]
    reader = MountReader(tmp_path, clock=lambda: now[0])
    rates = []
    for _ in range(5):
        rates.append(reader.read()[0].fill_rate_bytes_per_s)
        now[0] += 4.0
    assert rates[:3] == [None, None, None]
    assert rates[4] is not None


def test_what_a_job_writes_to_is_read_from_the_next_reading_on(tmp_path: Path):
    reader = MountReader(tmp_path, clock=lambda: 0.0)
    assert [mount.path for mount in reader.read()] == [str(mount_point(tmp_path))]
    assert [mount.path for mount in reader.read([Path("/proc/self/store")])] == [str(mount_point(tmp_path)), "/proc"]
