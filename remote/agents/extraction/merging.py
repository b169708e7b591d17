"""The parts of one extraction, which several servers or hosts have made, into the store that one alone would have made."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.agents.harness import JobContext, main
from remote.artifacts.atomic import publish_directory
from remote.artifacts.hidden_states import (
    FORMAT,
    JOURNAL,
    PRODUCER,
    VERSION,
    ShardRecord,
    StoreProperties,
    StoreReader,
)
from remote.artifacts.manifest import (
    FileEntry,
    Manifest,
    artifact_ref,
    file_entry,
    hash_file,
    read_manifest,
    write_manifest,
)
from remote.artifacts.quarantine import QUARANTINE, read_quarantine
from remote.artifacts.store_check import check_structure, journal_of
from remote.errors import Precondition
from remote.paths import resolve_path
from remote.protocol.jobs import JobResult
from remote.protocol.progress import FilesCopied
from remote.protocol.specs import StoreMergeSpec

_SMALL_BYTES = 64 << 10
_COUNTED = {"samples": 0, "tokens": 0, "quarantined": 0}


class _Part(NamedTuple):
    """A finished part; `whole` is the fingerprint of the store that it is a part of."""

    directory: Path
    manifest: Manifest
    properties: StoreProperties
    number: int
    of: int
    whole: str


def merge(spec: StoreMergeSpec, job: JobContext) -> JobResult:
    """Make one store of all parts, which stay as they are: the shards are second names of their files where both lie on one file system.

    Raises Precondition for what are no parts of one extraction, for one that is missing, twice there or damaged, and where the name is taken.
    """
    store = resolve_path(job.root, spec.store)
    if store.exists():
        raise Precondition(f"{store} is there already", hint="name another directory, or move it away")
    parts = _in_order([_read(resolve_path(job.root, part)) for part in spec.parts])
    total = sum(entry.bytes for part in parts for entry in part.manifest.files)
    done = 0
    directory = store.with_name(f"{store.name}.part")
    shutil.rmtree(directory, ignore_errors=True)
    job.write_with_room(directory, _SMALL_BYTES, lambda: directory.mkdir(parents=True))
    records: list[ShardRecord] = []
    end = 0
    for part in parts:
        for record in journal_of(part.directory):
            job.check_stop()
            file = _bring(job, part, record.file, directory / f"shard-{len(records):05d}.safetensors")
            records.append(msgspec.structs.replace(record, file=file, end=end + record.end))
            done += file.bytes
            job.tell(FilesCopied(bytes_done=done, bytes_total=total))
        end = records[-1].end
    _publish(job, parts, records, directory, store)
    properties = msgspec.convert(read_manifest(store).properties, StoreProperties)
    summary = {"samples": properties.samples, "tokens": properties.tokens, "quarantined": properties.quarantined}
    return JobResult(outputs=[artifact_ref("store", store)], summary={"parts": len(parts), **summary, "bytes": done})


def _read(directory: Path) -> _Part:
    reader = StoreReader(directory)
    manifest = read_manifest(directory)
    for fault in check_structure(reader):
        raise _damaged(directory, fault)
    number, _, of = manifest.inputs.get("part", "").partition("/")
    if not (number.isdecimal() and of.isdecimal()):
        raise Precondition(
            f"{directory} is no part of an extraction, but a store of its own",
            hint="`roost extraction start RUN --server JOB --part 1/2` makes the first of two parts",
        )
    return _Part(directory, manifest, reader.properties, int(number), int(of), manifest.inputs["whole"])


def _in_order(parts: list[_Part]) -> list[_Part]:
    """All parts of one extraction by their number; raises Precondition where they are not that."""
    first = parts[0]
    for part in parts[1:]:
        if (part.whole, part.of) != (first.whole, first.of):
            raise Precondition(
                f"{part.directory} is a part of another extraction than {first.directory}: of other inputs or settings, "
                f"or of {part.of} parts instead of {first.of}"
            )
        for name in StoreProperties.__struct_fields__:
            here, there = getattr(part.properties, name), getattr(first.properties, name)
            if name not in {*_COUNTED, "model"} and here != there:  # a model may lie elsewhere on another host
                raise Precondition(f"{part.directory} has {name} {here}, {first.directory} has {there}")
    found = [part.number for part in parts]
    missing = [f"{number}/{first.of}" for number in range(1, first.of + 1) if number not in found]
    if missing:
        raise Precondition(f"the extraction is not complete: part {', '.join(missing)} is missing")
    if len(set(found)) != len(found):
        raise Precondition("a part is named twice")
    return sorted(parts, key=lambda part: part.number)


def _bring(job: JobContext, part: _Part, entry: FileEntry, target: Path) -> FileEntry:
    """The part's file under another name, or a copy of it; both are believed only by their hash."""
    source = part.directory / entry.name

    try:
        os.link(source, target)
    except OSError:  # another file system, or one without second names
        job.write_with_room(
            target,
            entry.bytes + _SMALL_BYTES,
            lambda: shutil.copyfile(source, target),
            clean=lambda: target.unlink(missing_ok=True),
        )
    if hash_file(target) != entry.sha256:
        raise _damaged(part.directory, f"{entry.name} has other content than when it was finished")
    return FileEntry(name=target.name, bytes=entry.bytes, sha256=entry.sha256)


def _publish(job: JobContext, parts: list[_Part], records: list[ShardRecord], directory: Path, store: Path) -> None:
    quarantined = [entry for part in parts for entry in read_quarantine(part.directory)]
    first = parts[0]
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        fingerprint=first.whole,
        inputs=dict(_inputs(parts)),
        producer=PRODUCER,
        created_at=time.time(),
        files=[record.file for record in records],
        properties=msgspec.to_builtins(
            msgspec.structs.replace(
                first.properties,
                samples=sum(part.properties.samples for part in parts),
                tokens=sum(part.properties.tokens for part in parts),
                quarantined=len(quarantined),
            )
        ),
    )
    lines = {
        JOURNAL: b"".join(msgspec.json.encode(record) + b"\n" for record in records),
        QUARANTINE: b"".join(msgspec.json.encode(entry) + b"\n" for entry in quarantined),
    }
    written = {name: content for name, content in lines.items() if content}

    def write() -> None:
        for name, content in written.items():
            (directory / name).write_bytes(content)
        write_manifest(directory, manifest, written)

    job.write_with_room(directory, sum(map(len, written.values())) + _SMALL_BYTES, write)
    for fault in check_structure(StoreReader(directory)):
        raise Precondition(f"the parts do not make a store: {fault}", hint="make the part again that holds it, too")
    publish_directory(directory, store)


def _inputs(parts: list[_Part]) -> Iterator[tuple[str, str]]:
    """Those of the extraction, and the hash of each part's manifest."""
    yield from ((name, value) for name, value in parts[0].manifest.inputs.items() if name not in ("part", "whole"))
    for part in parts:
        yield f"part {part.number}/{part.of}", file_entry(part.directory, "manifest.json").sha256


def _damaged(directory: Path, fault: str) -> Precondition:
    return Precondition(
        f"the store {directory} is damaged: {fault}",
        hint="`roost extraction verify` says what else is; make it again from its inputs",
    )


if __name__ == "__main__":
    main(StoreMergeSpec, merge)
