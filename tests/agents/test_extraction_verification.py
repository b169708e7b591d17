"""Verifying a store: what is damaged is found and named, what a server captures now is compared."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from remote.agents.extraction.verification import work as verify
from remote.agents.extraction.worker import work as extract
from remote.agents.harness import JobContext
from remote.artifacts.hidden_states import JOURNAL
from remote.artifacts.manifest import MANIFEST_NAME, file_entry
from remote.artifacts.safetensors_file import open_safetensors
from remote.errors import Precondition
from remote.protocol.specs import Capture, Recapture, StoreVerificationSpec
from tests.agents.test_extraction_worker import LAYERS, MODEL, Engine, spec_of


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "spool").mkdir()
    made = Engine(tmp_path / "spool")
    made.ready(LAYERS)
    yield made
    made.server.shutdown()


@pytest.fixture
def store(engine: Engine, tmp_path: Path) -> Path:
    extract(spec_of(engine, tmp_path), job(tmp_path, "extraction"))
    return tmp_path / "store"


def job(root: Path, name: str) -> JobContext:
    (root / name).mkdir()
    return JobContext(root / name, root)


def damage(store: Path, tensor: str, row: int, value: int) -> None:
    """Overwrite a row of a tensor of the second shard."""
    path = store / "shard-00001.safetensors"
    arrays = open_safetensors(path).arrays
    copy = np.array(arrays[tensor])
    copy.view(np.uint8)[row] = value
    data = bytearray(path.read_bytes())
    place = bytes(data).find(arrays[tensor].tobytes())
    data[place : place + copy.nbytes] = copy.tobytes()
    path.write_bytes(data)


def seal_anew(store: Path) -> None:
    """Manifest and journal as if the shards had always been as they are now."""
    manifest = json.loads((store / MANIFEST_NAME).read_bytes())
    lines = [json.loads(line) for line in (store / JOURNAL).read_bytes().splitlines()]
    for line in lines:
        line["file"] = msgspec.to_builtins(file_entry(store, line["file"]["name"]))
    (store / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    manifest["files"] = [msgspec.to_builtins(file_entry(store, entry["name"])) for entry in manifest["files"]]
    (store / MANIFEST_NAME).write_text(json.dumps(manifest))


def test_a_whole_store_passes_and_says_what_was_looked_at(store: Path, tmp_path: Path) -> None:
    summary = verify(StoreVerificationSpec(store=str(store)), job(tmp_path, "whole")).summary
    files = [path for path in store.iterdir() if path.name not in (MANIFEST_NAME, "begun.json")]
    assert summary == {
        "files_hashed": len(files),
        "bytes_hashed": sum(path.stat().st_size for path in files),
        "files_not_read": 0,
        "bytes_not_read": 0,
        "samples_checked": 24,
    }
    sampled = verify(StoreVerificationSpec(store=str(store), samples=2), job(tmp_path, "sampled")).summary
    assert sampled["samples_checked"] == 2
    assert sampled["files_hashed"] + sampled["files_not_read"] == len(files)
    assert sampled["bytes_not_read"] > 0


Change = Callable[[Path], None]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda store: damage(store, "hidden_states", 1, 7), "other content than when it was finished"),
        (lambda store: (damage(store, "hidden_states", -1, 0), seal_anew(store)), "hidden_states ends in zeros"),
        (lambda store: (damage(store, "final_hidden_states", 0, 0), seal_anew(store)), "a row of final_hidden_states"),
        (lambda store: (damage(store, "hidden_states", 2, 0xFF), seal_anew(store)), "not finite"),
        (lambda store: (damage(store, "loss_mask", slice(None), 0), seal_anew(store)), "nothing that counts"),
    ],
)
def test_damage_is_named(store: Path, tmp_path: Path, change: Change, reason: str) -> None:
    change(store)
    with pytest.raises(Precondition, match=reason):
        verify(StoreVerificationSpec(store=str(store)), job(tmp_path, "verification"))


def again(engine: Engine, store: Path) -> StoreVerificationSpec:
    capture = Capture(layer_ids=LAYERS, spool_directory=str(engine.spool))
    recapture = Recapture(samples=5, url=engine.url, model=str(MODEL), capture=capture)
    return StoreVerificationSpec(store=str(store), samples=1, recapture=recapture)


def test_what_is_captured_again_is_the_same(engine: Engine, store: Path, tmp_path: Path) -> None:
    summary = verify(again(engine, store), job(tmp_path, "verification")).summary
    assert (summary["recaptured"], summary["identical"], summary["largest_deviation"]) == (5, 5, 0.0)
    assert [path.name for path in engine.spool.iterdir()] == ["ready-rank0.json"]


def test_another_layer_in_the_place_of_one_is_found(engine: Engine, store: Path, tmp_path: Path) -> None:
    engine.change = lambda states: {**states, "hidden_states": states["hidden_states"][:, ::-1].copy()}
    with pytest.raises(Precondition, match="apart from what is captured now"):
        verify(again(engine, store), job(tmp_path, "verification"))
