"""The trash of a file system: what goes is first renamed into it, so that a mistake can be taken back until it is purged.

An entry is a directory `<time>-<name>-<hex>` with `entry.json` (where it came from) and `content/`. The record is written
before anything moves, so after a crash every item is either where it was or in `content/`, never gone.
"""

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.artifacts.atomic import rename_without_replacing, sync_directory, write_atomic
from remote.errors import Conflict, NotFound
from remote.protocol.storage import TrashEntry

TRASH_NAMES = ("trash", ".roost-trash")
"""The directory's name below ROOT, and beside a run's directory elsewhere."""

_RECORD = "entry.json"
_CONTENT = "content"
_FORMAT = "roost-trash"


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """What `entry.json` says; `items` are paths relative to `origin`, "." for the whole of it."""

    format: str
    origin: str
    items: list[str]
    bytes: int
    files: int
    trashed_at: float
    trashed_by: str


class Size(NamedTuple):
    """Bytes on disk and the number of files, directories not counted."""

    bytes: int
    files: int


def size_of(path: Path) -> Size:
    """What is at and below `path`; links are counted as themselves and never followed."""
    total, count = 0, 0
    for status in _walk(path):
        total += status.st_blocks * 512
        count += 1
    return Size(total, count)


def _walk(path: Path) -> Iterator[os.stat_result]:
    if path.is_symlink() or not path.is_dir():
        yield path.lstat()
        return
    entries = list(os.scandir(path))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        else:
            yield entry.stat(follow_symlinks=False)


def put(trash: Path, origin: Path, items: list[str], *, actor: str) -> TrashEntry:
    """Move `items` of `origin` ("." for `origin` itself) into `trash`; raises OSError, which leaves nothing lost."""
    name = f"{time.strftime('%y%m%d-%H%M%S', time.gmtime())}-{origin.name}-{secrets.token_hex(2)}"
    entry = trash / name
    (entry / _CONTENT).mkdir(parents=True, mode=0o700)
    sizes = [size_of(origin / item) for item in items]
    record = _Record(
        format=_FORMAT,
        origin=str(origin),
        items=items,
        bytes=sum(size.bytes for size in sizes),
        files=sum(size.files for size in sizes),
        trashed_at=time.time(),
        trashed_by=actor,
    )
    write_atomic(entry / _RECORD, msgspec.json.encode(record))
    for item in items:
        rename_without_replacing(origin / item, entry / _CONTENT / _stored_name(origin, item))
    sync_directory(entry / _CONTENT)
    sync_directory(origin.parent)
    return _describe(entry, record)


def find(trashes: list[Path]) -> list[TrashEntry]:
    """Every entry of these trashes, the newest first; directories that are no entries are left out."""
    found = [
        _describe(path, record)
        for trash in trashes
        if trash.is_dir()
        for path in trash.iterdir()
        if (record := _read(path)) is not None
    ]
    return sorted(found, key=lambda entry: entry.trashed_at, reverse=True)


def restore(entry: Path) -> None:
    """Put everything in `entry` back; raises NotFound, and Conflict when something is at its place, which moves nothing."""
    record = _read(entry)
    if record is None:
        raise NotFound(f"{entry} is no entry of the trash", next_command="roost storage usage")
    origin = Path(record.origin)
    moves = [(entry / _CONTENT / _stored_name(origin, item), origin / item) for item in record.items]
    moves = [(stored, place) for stored, place in moves if stored.exists() or stored.is_symlink()]
    taken = [str(place) for _, place in moves if place.exists() or place.is_symlink()]
    if taken:
        raise Conflict(f"{', '.join(taken)} is there again: nothing was put back", hint="move it aside first")
    for stored, place in moves:
        place.parent.mkdir(parents=True, exist_ok=True)
        rename_without_replacing(stored, place)
        sync_directory(place.parent)
    shutil.rmtree(entry)


def is_entry(path: Path) -> bool:
    """Whether `path` is an entry of a trash, or what is left of one that is being purged: the one thing that may be deleted."""
    return path.parent.name in TRASH_NAMES and not path.is_symlink() and _read(path) is not None


def purge(entry: Path, on_removed: Callable[[int, int], None]) -> Size:
    """Delete an entry for good, its record last, so that a purge that broke off can be done again; what was removed.

    `on_removed` gets the files and bytes removed so far; what it raises stops the purge.
    """
    done_bytes, done_files = 0, 0
    for directory, directories, files in os.walk(entry / _CONTENT, topdown=False):
        links = [name for name in directories if Path(directory, name).is_symlink()]
        for name in (*files, *links):
            path = Path(directory, name)
            done_bytes += path.lstat().st_blocks * 512
            path.unlink()
            done_files += 1
            on_removed(done_files, done_bytes)
        Path(directory).rmdir()
    (entry / _RECORD).unlink(missing_ok=True)
    entry.rmdir()
    return Size(done_bytes, done_files)


def _stored_name(origin: Path, item: str) -> str:
    return origin.name if item == "." else item


def _read(entry: Path) -> _Record | None:
    try:
        record = msgspec.json.decode((entry / _RECORD).read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record if record.format == _FORMAT else None


def _describe(entry: Path, record: _Record) -> TrashEntry:
    return TrashEntry(
        name=entry.name,
        path=str(entry),
        origin=record.origin,
        bytes=record.bytes,
        files=record.files,
        trashed_at=record.trashed_at,
        trashed_by=record.trashed_by,
    )
