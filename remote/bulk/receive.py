"""The receiving end of a bulk transfer: it trusts neither names nor lengths nor bytes, and shows nothing before all is there."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remote.artifacts.atomic import write_atomic
from remote.artifacts.landing import Landing, is_taken, land
from remote.artifacts.manifest import MANIFEST_NAME, FileEntry, verify
from remote.artifacts.safe_copy import write_whole
from remote.bulk.inventory import MAX_MANIFEST_BYTES, Inventory, inventory
from remote.bulk.wire import BadPeer, Kind, Wire, pack_places, unpack_data
from remote.errors import Conflict, Precondition, WorkFailed
from remote.protocol.bulk import BulkDone

Tell = Callable[[int, int], None]
"""Called with the bytes that are at the destination and the bytes in total."""

_BLOCK_BYTES = 1 << 20


def receive(destination: Path, wire: Wire, tell: Tell) -> BulkDone:
    """Take an artifact from the other end to the name `destination`.

    What an earlier transfer of the same brought is kept and checked. Raises Conflict for a different destination, Busy for a
    transfer under way, Precondition for a full disk or a manifest that is not to be trusted, and the other end's error.
    """
    wire.send(Kind.GO)
    found = inventory(wire.receive_all(Kind.MANIFEST, MAX_MANIFEST_BYTES), "what is sent")
    with land(destination, found.sha256) as landing:
        if is_taken(destination):
            landing.discard()
            _require_same(destination, found)
            wire.send_all(Kind.WANT, b"")
            wire.expect(Kind.END)
            moved = 0
        else:
            moved = _Arrival(landing, found, tell).take(wire)
            landing.publish()
    wire.send(Kind.DONE, os.fsencode(destination))
    return BulkDone(
        path=str(destination),
        manifest_sha256=found.sha256,
        files=len(found.files),
        bytes_total=found.size,
        bytes_moved=moved,
    )


class _Arrival:
    """The files of one artifact on their way into the landing."""

    def __init__(self, landing: Landing, found: Inventory, tell: Tell) -> None:
        self._landing = landing
        self._found = found
        self._tell = tell
        self._digests: dict[int, Any] = {}
        self._done = 0

    def take(self, wire: Wire) -> int:
        """Ask for what is missing, write it, seal it with the manifest; the bytes that went over the line."""
        landing, found = self._landing, self._found
        landing.sweep({entry.name for entry in found.files}, set(found.directories))
        with landing.explaining_full_disks(found.size):
            for name in found.directories:
                (landing.tree / name).mkdir(exist_ok=True)
            wanted = [
                (index, offset)
                for index, entry in enumerate(found.files)
                if (offset := self._there(index, entry)) is not None
            ]
            there = self._done
            landing.require_room(found.size - there, len(wanted))
            wire.send_all(Kind.WANT, pack_places(wanted))
            for index, offset in wanted:
                self._take_file(wire, index, offset)
            wire.expect(Kind.END)
            write_atomic(landing.tree / MANIFEST_NAME, found.data)
        return self._done - there

    def _there(self, index: int, entry: FileEntry) -> int | None:
        """From which byte on a file is wanted; None when it is there, whole and right."""
        path = self._landing.tree / entry.name
        digest = self._digests[index] = hashlib.sha256()
        with path.open("ab"):
            size = path.stat().st_size
        if size <= entry.bytes:
            with path.open("rb") as reader:
                while block := reader.read(_BLOCK_BYTES):
                    digest.update(block)
            if size < entry.bytes or digest.hexdigest() == entry.sha256:
                self._done += size
                return size if size < entry.bytes else None
        if entry.bytes == 0:
            raise BadPeer(f"{entry.name} is empty and its hash says otherwise")
        path.write_bytes(b"")
        self._digests[index] = hashlib.sha256()
        return 0

    def _take_file(self, wire: Wire, index: int, offset: int) -> None:
        entry, digest = self._found.files[index], self._digests.pop(index)
        path = self._landing.tree / entry.name
        with path.open("r+b", buffering=0) as writer:
            writer.seek(offset)
            while offset < entry.bytes:
                got_index, got_offset, data = unpack_data(wire.expect(Kind.DATA))
                if (got_index, got_offset) != (index, offset):
                    raise BadPeer(f"bytes {got_offset} of file {got_index} came where {offset} of {index} were due")
                if offset + len(data) > entry.bytes:
                    raise BadPeer(f"{entry.name} is longer than announced ({entry.bytes} bytes)")
                write_whole(writer, data)
                digest.update(data)
                offset += len(data)
                self._done += len(data)
                self._tell(self._done, self._found.size)
            os.fsync(writer.fileno())
        if digest.hexdigest() != entry.sha256:
            path.unlink()
            raise WorkFailed(
                f"{entry.name} arrived with other content than its manifest says; nothing was kept of it",
                hint="the artifact is damaged where it comes from, or changed since it was finished: verify it there",
            )


def _require_same(destination: Path, found: Inventory) -> None:
    try:
        is_same = (destination / MANIFEST_NAME).read_bytes() == found.data
        if is_same:
            verify(destination)
    except (OSError, Precondition):
        is_same = False
    if not is_same:
        raise Conflict(
            f"{destination} exists and is not what is sent; nothing was written", hint="choose another destination"
        )
