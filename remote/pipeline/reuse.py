"""Whether an artifact that is there already may be used again; only its manifest is believed."""

import time
from pathlib import Path
from typing import NamedTuple

from remote.artifacts.manifest import read_manifest, verify
from remote.errors import RoostError


class Absent(NamedTuple):
    """Nothing finished is there; `begun` when an unfinished directory is."""

    begun: bool


class Valid(NamedTuple):
    """Made of the same inputs, and as its manifest says."""


class Outdated(NamedTuple):
    """Finished, but not to be used; `reason` says why."""

    reason: str


Reuse = Absent | Valid | Outdated


def inspect(directory: Path, fingerprint: str, *, thorough: bool) -> Reuse:
    """What lies in `directory`; `thorough` also reads every file again, else only the manifest and the sizes are looked at."""
    if not (directory / "manifest.json").is_file():
        return Absent(begun=directory.is_dir() and any(directory.iterdir()))
    try:
        manifest = read_manifest(directory)
        if manifest.fingerprint != fingerprint:
            return Outdated("it was made of other inputs or settings")
        if thorough:
            verify(directory)
        return _check_sizes(directory, {file.name: file.bytes for file in manifest.files})
    except RoostError as error:
        return Outdated(str(error))


def _check_sizes(directory: Path, sizes: dict[str, int]) -> Reuse:
    for name, size in sizes.items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != size:
            return Outdated(f"{path} is missing or has another size than its manifest says")
    return Valid()


def has_checkpoint(directory: Path, fingerprint: str) -> bool:
    """Whether a training with `fingerprint` can go on from a checkpoint in `directory`."""
    return any(isinstance(inspect(path, fingerprint, thorough=False), Valid) for path in directory.glob("step-*"))


def has_foreign_checkpoint(directory: Path, fingerprint: str) -> bool:
    """Whether `directory` holds a checkpoint of another training, which must not be mixed with this one's."""
    return any(
        isinstance(inspect(path, fingerprint, thorough=False), Outdated)
        for path in directory.glob("step-*")
        if path.suffix != ".part"
    )


def set_aside(directory: Path) -> Path:
    """Move an artifact out of the way, beside where it was, so that nothing is lost; the place where it is now."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    stem = f"{directory.name}.superseded-{stamp}"
    names = (stem if count == 0 else f"{stem}-{count}" for count in range(1000))
    place = next(path for name in names if not (path := directory.with_name(name)).exists())
    directory.rename(place)
    return place
