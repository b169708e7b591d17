"""The file systems that Roost and its runs write to."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from remote.protocol.telemetry import MountSample
from remote.telemetry.rates import FillRate

_FIND_EVERY_S = 10.0


class MountReader:
    """Reads the mounts of ROOT, of every run and of what jobs write to, each mount once."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._fill_rates: dict[Path, FillRate] = {}
        self._mounts: list[Path] = []
        self._asked: list[Path] = []
        self._find_at = 0.0

    def read(self, written: Iterable[Path] = ()) -> list[MountSample]:
        """A reading of now, ROOT's mount first, with those of the `written` paths; a mount that cannot be read is left out."""
        asked = list(written)
        if self._clock() >= self._find_at or asked != self._asked:
            self._mounts = list(dict.fromkeys(mount_point(path) for path in (*self._paths(), *asked)))
            self._asked, self._find_at = asked, self._clock() + _FIND_EVERY_S
        samples = (self._sample(mount) for mount in self._mounts)
        return [sample for sample in samples if sample is not None]

    def _paths(self) -> list[Path]:
        runs = self._root / "runs"
        try:
            return [self._root, *sorted(runs.iterdir())]
        except OSError:
            return [self._root]

    def _sample(self, mount: Path) -> MountSample | None:
        try:
            found = os.statvfs(mount)
        except OSError:
            return None
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        fill_rate = self._fill_rates.setdefault(mount, FillRate())
        fill_rate.add(self._clock(), used)
        return MountSample(
            path=str(mount),
            used_bytes=used,
            total_bytes=found.f_blocks * found.f_frsize,
            free_bytes=found.f_bavail * found.f_frsize,
            free_inodes=found.f_favail if found.f_files else None,
            fill_rate_bytes_per_s=fill_rate.rate(),
            total_inodes=found.f_files or None,
        )


def mount_point(path: Path) -> Path:
    """The mount that holds `path`, or that will hold it once it is made; links are followed."""
    place = path.resolve()
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return place
