"""The sending end of a bulk transfer."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from remote.artifacts.manifest import MANIFEST_NAME, FileEntry
from remote.bulk.inventory import MAX_MANIFEST_BYTES, Inventory, inventory
from remote.bulk.wire import DATA_BYTES, BadPeer, Kind, Wire, pack_places, unpack_places
from remote.errors import NotFound, Precondition
from remote.protocol.bulk import BulkDone

Tell = Callable[[int, int], None]
"""Called with the bytes that are at the destination and the bytes in total."""


def send(source: Path, wire: Wire, tell: Tell) -> BulkDone:
    """Send the finished artifact `source` to the end that asks for it.

    Raises NotFound or Precondition for what is no whole artifact, and the other end's error.
    """
    found = _read(source)
    wire.expect(Kind.GO)
    wire.send_all(Kind.MANIFEST, found.data)
    wanted = list(unpack_places(wire.receive_all(Kind.WANT, len(found.files) * len(pack_places([(0, 0)])))))
    rest = sum(_rest(found, index, offset) for index, offset in wanted)
    moved = 0
    for index, begin in wanted:
        entry, offset = found.files[index], begin
        descriptor = _open(source, entry)
        try:
            while offset < entry.bytes:
                wire.raise_if_told()
                data = os.pread(descriptor, min(DATA_BYTES, entry.bytes - offset), offset)
                if not data:
                    raise _damaged(source, entry, "ends early")
                wire.send_data(index, offset, data)
                offset += len(data)
                moved += len(data)
                tell(found.size - rest + moved, found.size)
        finally:
            os.close(descriptor)
    wire.send(Kind.END)
    path = wire.expect(Kind.DONE).decode(errors="replace")
    return BulkDone(
        path=path,
        manifest_sha256=found.sha256,
        files=len(found.files),
        bytes_total=found.size,
        bytes_moved=moved,
    )


def _read(source: Path) -> Inventory:
    if not source.is_dir():
        raise NotFound(f"there is no directory {source}", hint="an absolute path, or one below Roost's root")
    try:
        data = (source / MANIFEST_NAME).read_bytes()
    except FileNotFoundError:
        raise Precondition(
            f"{source} has no {MANIFEST_NAME}: it is unfinished, or no artifact of Roost",
            hint="wait until it is finished; a mapping of other origin gets one by `roost vocabulary copy`",
        ) from None
    if len(data) > MAX_MANIFEST_BYTES:
        raise Precondition(f"the manifest of {source} has {len(data)} bytes, which is too long")
    found = inventory(data, str(source))
    for entry in found.files:
        os.close(_open(source, entry))
    return found


def _open(source: Path, entry: FileEntry) -> int:
    """A descriptor of a file that is as long as promised and lies in the artifact itself, whatever links say."""
    path = source / entry.name
    try:
        if not path.resolve(strict=True).is_relative_to(source.resolve()):
            raise _damaged(source, entry, "is a link that leads out of it")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _damaged(source, entry, "is missing") from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size == entry.bytes:
        return descriptor
    os.close(descriptor)
    raise _damaged(source, entry, f"has {status.st_size} bytes instead of {entry.bytes}")


def _damaged(source: Path, entry: FileEntry, what: str) -> Precondition:
    return Precondition(f"{source} is damaged: {entry.name} {what}", hint="make it again from its inputs")


def _rest(found: Inventory, index: int, offset: int) -> int:
    if index >= len(found.files) or offset > found.files[index].bytes:
        raise BadPeer("the other end wants what the manifest does not list")
    return found.files[index].bytes - offset
