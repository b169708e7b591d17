"""What an unfinished store keeps beside its shards: with what it was begun, and the lines of its journals."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from remote.artifacts.atomic import write_atomic
from remote.artifacts.hidden_states import JOURNAL, ShardRecord, StoreProperties
from remote.errors import Precondition

BEGUN = "begun.json"

_LineT = TypeVar("_LineT")


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """With what a store was begun, so that whoever goes on with it does not mix."""

    properties: StoreProperties
    shard_bytes: int


def begin(directory: Path, properties: StoreProperties, shard_bytes: int) -> int:
    """Put on record with what the store is begun; the shard size that it was begun with."""
    begun = read_begun(directory)
    if begun is None:
        record = Begun(properties=properties, shard_bytes=shard_bytes)
        write_atomic(directory / BEGUN, msgspec.json.encode(record))
        return shard_bytes
    if begun.properties != properties:
        differing = [
            name
            for name in StoreProperties.__struct_fields__
            if getattr(begun.properties, name) != getattr(properties, name)
        ]
        told = ", ".join(f"{name} was {getattr(begun.properties, name)}" for name in differing)
        raise Precondition(
            f"the store {directory} was begun with others: {told}",
            hint="go on with what it was begun with, or move it away to begin a new one",
        )
    return begun.shard_bytes


def read_begun(directory: Path) -> Begun | None:
    """With what an unfinished store was begun; None where none was."""
    try:
        return msgspec.json.decode((directory / BEGUN).read_bytes(), type=Begun)
    except (OSError, msgspec.DecodeError):
        return None


def append_durably(path: Path, line: bytes) -> None:
    """The whole line or, on a full disk, nothing of it."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            done = 0
            while done < len(line):
                done += file.write(line[done:])
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise


def read_lines(path: Path, line_type: type[_LineT]) -> list[_LineT]:
    """The whole lines of a record; what a crash tore off is cut from the file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    found: list[_LineT] = []
    end = 0
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        try:
            found.append(msgspec.json.decode(line, type=line_type))
        except msgspec.DecodeError:
            break
        end += len(line)
    if end != len(content):
        write_atomic(path, content[:end])
    return found


def complete_shards(directory: Path) -> list[ShardRecord]:
    """The shards on record of a store, finished or not, for whoever only looks; a line that is being written is passed over."""
    try:
        lines = (directory / JOURNAL).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=ShardRecord) for line in lines if line.endswith(b"\n")]


def recover(directory: Path) -> list[ShardRecord]:
    """The complete shards of an unfinished store."""
    journal = directory / JOURNAL
    shards: list[ShardRecord] = []
    listed = read_lines(journal, ShardRecord)
    for record in listed:
        path = directory / record.file.name
        if not path.is_file() or path.stat().st_size != record.file.bytes:
            break
        shards.append(record)
    if len(shards) != len(listed):
        write_atomic(journal, b"".join(msgspec.json.encode(record) + b"\n" for record in shards))
    return shards
