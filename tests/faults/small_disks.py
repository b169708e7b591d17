"""Small real file systems to be filled: a tmpfs, and an ext4 in a loop file with hardly any inodes."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest

from tests.jobs.workshop import end_everything_below

_FULL = (errno.ENOSPC, errno.EDQUOT)


class SmallDisk:
    """A mounted file system; its fillers lie in a directory of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fillers = path / "fillers"
        self._fillers.mkdir()

    @property
    def bytes_free(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    @property
    def inodes_free(self) -> int:
        return os.statvfs(self.path).f_favail

    def fill(self, *, leave: int = 0) -> None:
        """Use up its bytes, all but `leave` of them."""
        filler = self._fillers / f"bytes-{len(list(self._fillers.iterdir()))}"
        with filler.open("xb", buffering=0) as file:
            for size in (1 << 20, 1 << 16, 1 << 12):
                while self.bytes_free >= leave + size and _grows(file, size):
                    pass
            if leave == 0:
                while _grows(file, 1):
                    pass

    def use_up_inodes(self) -> None:
        number = 0
        while True:
            try:
                (self._fillers / f"inode-{number}").touch(exist_ok=False)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                return
            number += 1

    def make_room(self) -> None:
        for filler in self._fillers.iterdir():
            filler.unlink()


def _grows(file: FileIO, size: int) -> bool:
    try:
        return file.write(b"x" * size) == size
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return False


def _mount(*arguments: str) -> None:
    tool = shutil.which("mount")
    if tool is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine does not mount one: {done.stderr.strip()}")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., SmallDisk]]:
    """Mounts what it is told to, and unmounts it when everything that a test started has ended."""
    points: list[Path] = []

    def mount(*arguments: str) -> SmallDisk:
        point = tmp_path / f"disk-{len(points)}"
        point.mkdir()
        _mount(*arguments, str(point))
        points.append(point)
        return SmallDisk(point)

    yield mount
    end_everything_below(tmp_path)
    for point in points:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


@pytest.fixture
def small_disk(mounted: Callable[..., SmallDisk]) -> SmallDisk:
    """A tmpfs of 8 MiB."""
    return mounted("-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs")


@pytest.fixture
def few_inodes(tmp_path: Path, mounted: Callable[..., SmallDisk]) -> SmallDisk:
    """An ext4 of 16 MiB with about fifty inodes to spare."""
    tool = shutil.which("mkfs.ext4")
    if tool is None:
        pytest.skip("there is no mkfs.ext4")
    image = tmp_path / "image"
    with image.open("xb") as file:
        file.truncate(16 << 20)
    subprocess.run([tool, "-q", "-N", "64", "-m", "0", str(image)], check=True)
    return mounted("-o", "loop", str(image))
