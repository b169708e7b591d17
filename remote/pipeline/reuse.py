"""Whether an artifact that is there already may be used again; only its manifest is believed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from remote.artifacts.atomic import write_atomic
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
        if read_manifest(directory).fingerprint != fingerprint:
            return Outdated("it was made of other inputs or settings")
        verify(directory, hashes=thorough)
    except RoostError as error:
        return Outdated(str(error))
    return Valid()


def mark_begun(directory: Path, fingerprint: str) -> None:
    """Put on record, beside `directory`, of which inputs it is being made; its manifest only says so in the end."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(_mark(directory), fingerprint.encode())


def was_begun_with(directory: Path, fingerprint: str) -> bool:
    """Whether what was begun in `directory` is of the same inputs, so that it can be gone on with."""
    try:
        return _mark(directory).read_text() == fingerprint
    except OSError:
        return False


def _mark(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.begun")


def has_checkpoint(directory: Path, fingerprint: str) -> bool:
    """Whether a training with `fingerprint` can go on from a checkpoint in `directory`."""
    return any(isinstance(found, Valid) for found in _checkpoints(directory, fingerprint))


def has_foreign_checkpoint(directory: Path, fingerprint: str) -> bool:
    """Whether `directory` holds a checkpoint of another training, which must not be mixed with this one's."""
    return any(isinstance(found, Outdated) for found in _checkpoints(directory, fingerprint))


def _checkpoints(directory: Path, fingerprint: str) -> Iterator[Reuse]:
    return (inspect(path, fingerprint, thorough=False) for path in directory.glob("step-????????"))


def set_aside(directory: Path) -> Path:
    """Move an artifact out of the way, beside where it was, so that nothing is lost; the place where it is now."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    stem = f"{directory.name}.superseded-{stamp}"
    names = (stem if count == 0 else f"{stem}-{count}" for count in range(1000))
    place = next(path for name in names if not (path := directory.with_name(name)).exists())
    directory.rename(place)
    return place
