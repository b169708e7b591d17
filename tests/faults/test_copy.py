"""Copying under kill -9 and on full disks: at each look the destination is absent or whole, and in the end it is equal."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remote.artifacts.manifest import verify
from remote.artifacts.safe_copy import copy_tree
from remote.errors import Precondition
from tests.artifacts.trees import content, make_artifact
from tests.faults.small_disks import SmallDisk
from tests.jobs.workshop import RELEASE

COPY = """
import sys
from pathlib import Path
from remote.artifacts.safe_copy import copy_tree
copy_tree(Path(sys.argv[1]), Path(sys.argv[2]), on_progress=lambda *_: print(flush=True))
"""


def nothing(done: int, total: int) -> None:
    """No progress is looked at."""


def start_copy(source: Path, destination: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", COPY, str(source), str(destination)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(RELEASE)})


def is_absent_or_whole(destination: Path) -> bool:
    if destination.exists():
        verify(destination)
    return True


@pytest.mark.parametrize("seed", [1, 2])
def test_lightning_688_a_copy_that_is_killed_again_and_again_ends_equal(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = {f"deep/{n % 3}/shard-{n}": os.urandom(chance.randrange(1_500_000)) for n in range(16)}
    source, destination = make_artifact(tmp_path / "source", files), tmp_path / "copies/copy"
    kills = 0
    for most in (1, 3, 6, 9, 12, 15):
        copying = start_copy(source, destination)
        assert copying.stdout is not None
        for _ in range(chance.randint(1, most)):
            copying.stdout.readline()
        time.sleep(chance.random() / 200)
        copying.send_signal(signal.SIGKILL)
        kills += copying.wait() == -signal.SIGKILL
        copying.stdout.close()
        assert is_absent_or_whole(destination)
    assert kills > 0
    last = start_copy(source, destination)
    last.communicate(timeout=60)
    assert last.returncode == 0
    assert content(destination) == content(source)
    assert os.listdir(destination.parent) == ["copy"]


def test_a_reader_sees_nothing_or_all(tmp_path: Path) -> None:
    source = make_artifact(tmp_path / "source", {f"shard-{n}": os.urandom(500_000) for n in range(12)})
    copying = start_copy(source, tmp_path / "copy")
    assert copying.stdout is not None
    for _ in copying.stdout:
        assert is_absent_or_whole(tmp_path / "copy")
    assert copying.wait() == 0
    verify(tmp_path / "copy")


def test_eight_copies_at_once_end_in_one(tmp_path: Path) -> None:
    source = make_artifact(tmp_path / "source", {f"shard-{n}": os.urandom(400_000) for n in range(4)})
    copies = [start_copy(source, tmp_path / "copy") for _ in range(8)]
    for copying in copies:
        copying.communicate(timeout=60)
    assert 0 in {copying.returncode for copying in copies}
    assert content(tmp_path / "copy") == content(source)
    assert sorted(os.listdir(tmp_path)) == ["copy", "source"]


def test_too_large_a_source_is_refused_with_what_is_missing(tmp_path: Path, small_disk: SmallDisk) -> None:
    source = make_artifact(tmp_path / "source", {"a": bytes(5_000_000), "b": os.urandom(6_000_000)})
    with pytest.raises(Precondition, match=r"no room for .*copy: \d+ bytes are still to be written, \d+ are free, \d+"):
        copy_tree(source, small_disk.path / "copy", on_progress=nothing)
    assert not (small_disk.path / "copy").exists()


def test_too_many_files_are_refused(tmp_path: Path, few_inodes: SmallDisk) -> None:
    source = make_artifact(tmp_path / "source", {f"f{n}": b"x" for n in range(60)})
    with pytest.raises(Precondition, match="files are still to be written"):
        copy_tree(source, few_inodes.path / "copy", on_progress=nothing)
    assert not (few_inodes.path / "copy").exists()


def test_a_disk_that_fills_under_a_copy_shows_nothing_and_goes_on_with_room(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    source = make_artifact(tmp_path / "source", {f"shard-{n}": os.urandom(1_000_000) for n in range(6)})
    destination = small_disk.path / "copies/copy"

    def fill(done: int, total: int) -> None:
        if 1_500_000 < done < 3_000_000:
            small_disk.fill(leave=500_000)

    with pytest.raises(Precondition, match="are missing"):
        copy_tree(source, destination, on_progress=fill)
    assert [path.suffix for path in destination.parent.iterdir()] == [".part"]
    small_disk.make_room()
    copy_tree(source, destination, on_progress=nothing)
    assert content(destination) == content(source)
    assert os.listdir(destination.parent) == ["copy"]
