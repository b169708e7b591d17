"""A store into other trainers' files and back: the same samples, states and masks."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from remote.agents.extraction.conversion import work
from remote.agents.harness import JobContext
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.store_check import as_float
from remote.errors import Precondition
from remote.protocol.specs import StoreExportSpec, StoreImportSpec
from tests.agents.test_extraction_worker import MODEL
from tests.agents.test_training_worker import HIDDEN, LAYERS, Inputs


def job(root: Path, name: str) -> JobContext:
    (root / name).mkdir()
    return JobContext(root / name, root)


def there_and_back(tmp_path: Path, layout: str, dtype: str) -> tuple[StoreReader, StoreReader]:
    Inputs(tmp_path, dtype=dtype, samples=12)
    store = StoreReader(tmp_path / "store")
    # The store names its target by the path `target`, which is relative to the root of a job.
    work(StoreExportSpec(layout=layout, store="store", directory="theirs"), job(tmp_path, "export"))
    work(
        StoreImportSpec(layout=layout, directory="theirs", store="back", target_model=str(MODEL), layer_ids=LAYERS),
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
