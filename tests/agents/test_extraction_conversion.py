"""A store into other trainers' files and back: the same samples, states and masks."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch

from remote.agents.extraction.conversion import work
from remote.agents.extraction.export_note import NOTE_NAME
from remote.agents.harness import JobContext
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.manifest import hash_file, read_manifest, write_manifest
from remote.artifacts.store_check import as_float
from remote.errors import Precondition
from remote.protocol.specs import StoreExportSpec, StoreImportSpec, StoreLayout
from tests.agents.test_extraction_worker import MODEL
from tests.agents.test_training_worker import HIDDEN, LAYERS, Inputs


def job(root: Path, name: str) -> JobContext:
    (root / name).mkdir()
    return JobContext(root / name, root)


def name_the_target(root: Path) -> None:
    """Give the target a tokenizer and a template, and the store their hashes, as an extraction does."""
    target, store = root / "target", root / "store"
    for path in MODEL.iterdir():
        if path.name != "config.json" and path.suffix != ".safetensors":
            shutil.copy(path, target)
    template = ChatTemplate(target, {})
    hashes = {
        "target_config_sha256": hash_file(target / "config.json"),
        "tokenizer_sha256": template.tokenizer_sha256,
        "chat_template_sha256": template.sha256,
    }
    manifest = read_manifest(store)
    write_manifest(store, msgspec.structs.replace(manifest, properties={**manifest.properties, **hashes}))


def there_and_back(tmp_path: Path, layout: str, dtype: str) -> tuple[StoreReader, StoreReader]:
    Inputs(tmp_path, dtype=dtype, samples=12)
    name_the_target(tmp_path)
    store = StoreReader(tmp_path / "store")
    # The store names its target by the path `target`, which is relative to the root of a job.
    work(StoreExportSpec(layout=layout, store="store", directory="theirs"), job(tmp_path, "export"))
    work(
        StoreImportSpec(layout=layout, directory="theirs", store="back", target_model="target", layer_ids=LAYERS),
        job(tmp_path, "import"),
    )
    return store, StoreReader(tmp_path / "back")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_specforge_and_back(tmp_path: Path, dtype: str) -> None:
    store, back = there_and_back(tmp_path, "specforge", dtype)
    assert len(back) == len(store) == 12
    for one, other in zip(store, back, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one[1:], other[1:], strict=True))
    point = torch.load(tmp_path / "theirs/rows_0-2000/data_3.ckpt", weights_only=True)
    length = len(store[3].input_ids)
    assert point["aux_hidden_state"].shape == (1, length, len(LAYERS) * HIDDEN)
    assert point["hidden_state"].shape == (1, length, HIDDEN)
    assert point["hidden_state"].dtype == getattr(torch, dtype)
    assert point["loss_mask"].dtype == point["input_ids"].dtype == torch.int64


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_speculators_and_back(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store, back = there_and_back(tmp_path, "speculators", dtype)
    assert back.properties.final_norm == "pre_norm"
    weight = safetensors.torch.load_file(tmp_path / "target/model.safetensors")["model.norm.weight"].numpy()
    for one, other in zip(store, back, strict=True):
        assert one.sample_id == other.sample_id
        for name in ("input_ids", "loss_mask", "hidden_states"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        before = as_float(other.final_hidden_states)
        normed = weight * before / np.sqrt((before**2).mean(-1, keepdims=True) + 1e-30)
        expected = as_float(one.final_hidden_states)
        scale = np.sqrt(((expected / weight) ** 2).mean(-1, keepdims=True))
        assert np.allclose(normed, expected / scale, rtol=2e-2 if dtype == "bfloat16" else 1e-5, atol=1e-3)
    tensors = safetensors.torch.load_file(tmp_path / "theirs/hs_3.safetensors")
    assert tensors["hidden_states"].shape == (len(store[3].input_ids), len(LAYERS) + 1, HIDDEN)


@pytest.mark.parametrize("layout", ["specforge", "speculators"])
def test_an_import_that_contradicts_the_export_is_refused(
    tmp_path: Path, layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    there_and_back(tmp_path, layout, "float32")
    as_exported = StoreImportSpec(
        layout=layout, directory="theirs", store="again", target_model="target", layer_ids=LAYERS
    )
    others = {
        f"its layer ids are \\{LAYERS}, not".replace("]", "\\]"): {"layer_ids": [layer + 1 for layer in LAYERS]},
        "its target is .* by the hash": {"target_model": "other"},
        "its chat template with its variables is": {"chat_template_kwargs": {"thinking": False}},
    }
    shutil.copytree(tmp_path / "target", tmp_path / "other")
    config = json.loads((tmp_path / "other/config.json").read_bytes())
    (tmp_path / "other/config.json").write_text(json.dumps({**config, "rope_theta": 7.0}))
    for number, (said, change) in enumerate(others.items()):
        with pytest.raises(Precondition, match=said):
            work(msgspec.structs.replace(as_exported, **change), job(tmp_path, f"wrong-{number}"))
    next((tmp_path / "theirs").rglob("*_7.*")).unlink()
    with pytest.raises(Precondition, match="its samples are 12, not 11"):
        work(as_exported, job(tmp_path, "incomplete"))
    assert not (tmp_path / "again").exists()


def test_files_that_nothing_vouches_for_are_imported_with_a_warning(tmp_path: Path) -> None:
    there_and_back(tmp_path, "specforge", "float32")
    (tmp_path / "theirs" / NOTE_NAME).unlink()
    alone = job(tmp_path, "alone")
    spec = StoreImportSpec(
        layout="specforge", directory="theirs", store="again", target_model="target", layer_ids=LAYERS
    )
    assert work(spec, alone).summary["vouched_for"] is False
    (warning,) = [line for line in (alone.directory / "progress.jsonl").read_text().splitlines() if NOTE_NAME in line]
    assert "is taken on trust" in warning


def test_a_directory_that_is_there_and_one_that_is_empty_are_refused(tmp_path: Path) -> None:
    Inputs(tmp_path, samples=12)
    (tmp_path / "theirs").mkdir()
    with pytest.raises(Precondition, match="is there already"):
        work(StoreExportSpec(layout="specforge", store="store", directory="theirs"), job(tmp_path, "export"))
    spec = StoreImportSpec(layout="specforge", directory="theirs", store="b", target_model=str(MODEL), layer_ids=[1])
    with pytest.raises(Precondition, match="has no rows_"):
        work(spec, job(tmp_path, "import"))


@pytest.mark.parametrize("layout", ["specforge", "speculators"])
def test_a_store_with_one_bit_turned_over_is_not_exported(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Inputs(tmp_path, samples=12)
    shard = sorted((tmp_path / "store").glob("shard-*"))[-1]
    content = bytearray(shard.read_bytes())
    content[-9] ^= 1
    shard.write_bytes(content)
    with pytest.raises(Precondition, match=f"damaged: {shard.name} has other content"):
        work(StoreExportSpec(layout=layout, store="store", directory="theirs"), job(tmp_path, "export"))
    assert not (tmp_path / "theirs").exists()
