"""What a host knows of a mapping beyond its files."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from remote.artifacts.manifest import MANIFEST_NAME, hash_file
from remote.artifacts.mapping import Mapping, write_mapping
from remote.artifacts.token_counts import CountsProperties, write_counts
from remote.protocol.mappings import CountedSource
from remote.storage.mapping_inspection import inspect_mapping
from tests.artifacts.small_mappings import IDS, VOCAB_SIZE, save_tensors, write_small


def write_target(place: Path, special: list[int]) -> None:
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"vocab_size": VOCAB_SIZE}))
    added = [{"id": token, "special": True, "content": f"<{token}>"} for token in special]
    (place / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))


def test_everything_with_the_same_tokens_is_a_use(host) -> None:
    run = host.run("old")
    (host.root / "mappings").mkdir()
    (run / "mapping").rename(run / "was")
    mapping = write_small(run / "mapping")
    write_small(host.root / "mappings/mine")
    save_file({"d2t": mapping.d2t, "t2d": mapping.t2d}, run / "drafter/model.safetensors")
    found = inspect_mapping(host.store, host.root / "mappings/mine", None)
    assert [(use.kind, use.path) for use in found.used_by] == [
        ("drafter", str(run / "drafter")),
        ("mapping", str(run / "mapping")),
    ]
    other = write_small(host.root / "mappings/other", IDS[1:])
    assert len(other.d2t) == len(IDS) - 1
    assert inspect_mapping(host.store, host.root / "mappings/other", None).used_by == []


def test_the_targets_special_tokens_are_counted(host) -> None:
    write_small(host.root / "mapping")
    write_target(host.root / "target", [int(IDS[0]), int(IDS[1]), 5])
    found = inspect_mapping(host.store, host.root / "mapping", host.root / "target")
    assert (found.special_covered, found.special_tokens) == (2, 3)
    assert (found.lowest_id, found.highest_id) == (0, 63)
    meta = host.root / "mapping/vocab_mapping_meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "target_model": str(host.root / "target")}))
    assert inspect_mapping(host.store, host.root / "mapping", None).special_tokens == 3


def test_counts_are_named_where_they_are_those_of_the_mapping(host) -> None:
    counts = np.zeros(VOCAB_SIZE, np.int64)
    counts[IDS] = 1
    source = CountedSource(path="store", kind="store", weight=1.0, tokens=9, sha256="s")
    properties = CountsProperties(
        target_model="m", tokenizer_sha256="t", vocab_size=VOCAB_SIZE, tokens=9.0, sources=[source]
    )
    for name in ("counts", "mine-counts"):
        (host.root / name).mkdir()
    write_counts(host.root / "counts", counts, properties, fingerprint="c")
    write_small(host.root / "mine")
    assert inspect_mapping(host.store, host.root / "mine", None).counts == str(host.root / "counts"), (
        "of the same store"
    )
    write_counts(host.root / "mine-counts", counts + 1, properties, fingerprint="d")
    inputs = {"counts_manifest": hash_file(host.root / "mine-counts" / MANIFEST_NAME)}
    (host.root / "built").mkdir()
    write_mapping(
        host.root / "built",
        Mapping.from_target_ids(IDS, VOCAB_SIZE),
        target_model="m",
        coverage=None,
        fingerprint="f",
        inputs={**inputs, "counts": str(host.root / "mine-counts")},
        save_tensors=save_tensors,
    )
    assert inspect_mapping(host.store, host.root / "built", None).counts == str(host.root / "mine-counts")
    (host.root / "mine-counts/manifest.json").write_bytes(b"{}")
    assert inspect_mapping(host.store, host.root / "built", None).counts is None
