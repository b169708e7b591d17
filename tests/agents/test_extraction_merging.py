"""Parts of one extraction, made by several servers, and the store that they make together."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from remote.agents.extraction import merging
from remote.agents.extraction.merging import merge
from remote.agents.extraction.worker import work
from remote.agents.harness import JobContext
from remote.artifacts.hidden_states import StoreProperties, StoreReader
from remote.artifacts.manifest import read_manifest, verify
from remote.artifacts.quarantine import read_quarantine
from remote.artifacts.store_check import check_structure
from remote.errors import Precondition
from remote.protocol.specs import Part, StoreMergeSpec
from tests.agents.test_extraction_worker import CONVERSATIONS, Engine, engine, spec_of

__all__ = ["engine"]


def context(root: Path, name: str) -> JobContext:
    (root / name).mkdir()
    return JobContext(root / name, root)


def extract(engine: Engine, root: Path, number: int, of: int, *, whole: str = "w", store: str | None = None) -> str:
    """A finished part; the path of its store below the root."""
    name = store or f"part-{number}"
    spec = msgspec.structs.replace(
        spec_of(engine, root),
        store=str(root / name),
        part=Part(number=number, of=of, whole=whole),
        fingerprint=f"{whole}-{number}",
    )
    work(spec, context(root, f"job-{name}"))
    return name


@pytest.mark.parametrize("of", [2, 3])
def test_all_parts_make_the_store_that_one_extraction_makes(engine: Engine, tmp_path: Path, of: int) -> None:
    work(
        msgspec.structs.replace(spec_of(engine, tmp_path), store=str(tmp_path / "alone")),
        context(tmp_path, "alone-job"),
    )
    parts = [extract(engine, tmp_path, number, of) for number in range(of, 0, -1)]
    result = merge(StoreMergeSpec(parts=parts, store="whole"), context(tmp_path, "merge"))
    alone, whole = StoreReader(tmp_path / "alone"), StoreReader(tmp_path / "whole")
    verify(whole.directory)
    assert not list(check_structure(whole))
    assert read_manifest(whole.directory).fingerprint == "w"
    assert whole.properties == alone.properties
    assert result.summary["samples"] == len(whole) == len(alone)
    one, other = ({sample.sample_id: sample for sample in store} for store in (alone, whole))
    assert one.keys() == other.keys()
    for name, sample in one.items():
        assert all(np.array_equal(a, b) for a, b in zip(sample[1:], other[name][1:], strict=True))


def test_no_byte_is_written_twice_on_one_file_system_and_without_second_names_it_is_copied(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [extract(engine, tmp_path, number, 2) for number in (1, 2)]
    wanted_room: list[Path] = []
    write = JobContext.write_with_room

    def record(job: JobContext, path: Path, *rest: Any, **more: Any) -> object:
        wanted_room.append(path)
        return write(job, path, *rest, **more)

    monkeypatch.setattr(JobContext, "write_with_room", record)
    merge(StoreMergeSpec(parts=parts, store="linked"), context(tmp_path, "merge-1"))
    assert {path.suffix for path in wanted_room} == {".part"}, "what is only named again needs no room"

    def refuse(*_: object) -> None:
        raise OSError(18, os.strerror(18))

    monkeypatch.setattr(os, "link", refuse)
    merge(StoreMergeSpec(parts=parts, store="copied"), context(tmp_path, "merge-2"))
    shard = "shard-00000.safetensors"
    assert os.path.samefile(tmp_path / "linked" / shard, tmp_path / "part-1" / shard)
    assert not os.path.samefile(tmp_path / "copied" / shard, tmp_path / "part-1" / shard)
    verify(tmp_path / "copied")


def test_what_was_quarantined_in_a_part_is_so_in_the_whole(engine: Engine, tmp_path: Path) -> None:
    lines = CONVERSATIONS.read_text().splitlines()
    unfit = {**json.loads(lines[0]), "conversations": [{"role": "user", "content": "no answer"}]}
    data = tmp_path / "train.jsonl"
    data.write_text("\n".join([json.dumps(unfit), *lines[1:]]) + "\n")
    for number in (1, 2):
        spec = msgspec.structs.replace(
            spec_of(engine, tmp_path),
            conversations=str(data),
            store=str(tmp_path / f"part-{number}"),
            part=Part(number=number, of=2, whole="w"),
        )
        work(spec, context(tmp_path, f"job-{number}"))
    merge(StoreMergeSpec(parts=["part-1", "part-2"], store="whole"), context(tmp_path, "merge"))
    assert [entry.sample_id for entry in read_quarantine(tmp_path / "whole")] == [unfit["id"]]
    properties = msgspec.convert(read_manifest(tmp_path / "whole").properties, StoreProperties)
    assert (properties.samples, properties.quarantined) == (len(lines) - 1, 1)


def test_what_is_not_all_parts_of_one_extraction_is_refused(engine: Engine, tmp_path: Path) -> None:
    one, two = (extract(engine, tmp_path, number, 3) for number in (1, 2))
    of_two = extract(engine, tmp_path, 2, 2, store="of-two")
    other = extract(engine, tmp_path, 3, 3, whole="other", store="other")
    alone = msgspec.structs.replace(spec_of(engine, tmp_path), store=str(tmp_path / "alone"))
    work(alone, context(tmp_path, "alone-job"))
    for number, (parts, words) in enumerate(
        [
            ([one, two], "part 3/3 is missing"),
            ([one, two, of_two], "of 2 parts instead of 3"),
            ([one, two, other], "a part of another extraction"),
            ([one, two, "alone"], "no part of an extraction"),
            ([one, two, "nothing"], "missing or unfinished"),
        ]
    ):
        with pytest.raises(Precondition, match=words):
            merge(StoreMergeSpec(parts=parts, store="whole"), context(tmp_path, f"merge-{number}"))
    assert not (tmp_path / "whole").exists()


def test_a_part_that_is_damaged_or_twice_there_is_refused(engine: Engine, tmp_path: Path) -> None:
    parts = [extract(engine, tmp_path, number, 2) for number in (1, 2)]
    again = extract(engine, tmp_path, 1, 2, store="again")
    with pytest.raises(Precondition, match="twice"):
        merge(StoreMergeSpec(parts=[*parts, again], store="whole"), context(tmp_path, "merge-1"))
    shard = tmp_path / "part-2/shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-20] ^= 1
    shard.write_bytes(content)
    with pytest.raises(Precondition, match="other content than when it was finished"):
        merge(StoreMergeSpec(parts=parts, store="whole"), context(tmp_path, "merge-2"))
    assert not (tmp_path / "whole").exists()
    (tmp_path / "whole").mkdir()
    with pytest.raises(Precondition, match="is there already"):
        merge(StoreMergeSpec(parts=parts, store="whole"), context(tmp_path, "merge-3"))


def test_a_merge_that_was_killed_leaves_nothing_that_is_taken_for_a_store(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [extract(engine, tmp_path, number, 2) for number in (1, 2)]
    publish = merging.publish_directory

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(merging, "publish_directory", die)
    with pytest.raises(KeyboardInterrupt):
        merge(StoreMergeSpec(parts=parts, store="whole"), context(tmp_path, "merge-1"))
    assert not (tmp_path / "whole").exists()
    monkeypatch.setattr(merging, "publish_directory", publish)
    merge(StoreMergeSpec(parts=parts, store="whole"), context(tmp_path, "merge-2"))
    verify(tmp_path / "whole")
