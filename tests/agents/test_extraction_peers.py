"""What SpecForge 0.2.0 and speculators 0.9.0 themselves read from a store that was exported for them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from remote.agents.extraction.conversion import work
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.store_check import as_float
from remote.protocol.specs import StoreExportSpec, StoreLayout
from tests.agents.test_extraction_conversion import job
from tests.agents.test_training_worker import Inputs
from tests.conftest import Peers

pytestmark = pytest.mark.slow

READERS = Path(__file__).with_name("peer_readers.py")
SAMPLES = 12


def exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: StoreLayout, dtype: str, peers: Peers
) -> tuple[Inputs, list[dict[str, torch.Tensor]]]:
    """A store's inputs, and each sample as the peer's data set gives it."""
    monkeypatch.chdir(tmp_path)  # the store names its target by a path that is relative to the root of a job
    inputs = Inputs(tmp_path, dtype=dtype, samples=SAMPLES)
    work(StoreExportSpec(layout=layout, store="store", directory="theirs"), job(tmp_path, "export"))
    peers.run(READERS, layout, tmp_path / "theirs", tmp_path / "read.safetensors")
    tensors = load_file(tmp_path / "read.safetensors")
    samples: list[dict[str, torch.Tensor]] = [{} for _ in range(SAMPLES)]
    for key, tensor in tensors.items():
        number, name = key.split(".")
        samples[int(number)][name] = tensor
    return inputs, samples


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_specforge_reads_the_same_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, peers: Peers
) -> None:
    _, theirs = exported(tmp_path, monkeypatch, "specforge", dtype, peers)
    for ours, read in zip(StoreReader(tmp_path / "store"), theirs, strict=True):
        assert read["input_ids"].tolist() == ours.input_ids.tolist()
        # It takes no loss of a sample's last position, which has no next token.
        assert read["loss_mask"].tolist() == [*ours.loss_mask[:-1].astype(int).tolist(), 0]
        assert torch.equal(read["hidden_state"].float(), torch.tensor(as_float(ours.hidden_states)).flatten(1))
        assert torch.equal(read["target"].float(), torch.tensor(as_float(ours.final_hidden_states)))
        assert read["hidden_state"].dtype == getattr(torch, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_speculators_reads_the_same_samples_and_makes_the_same_logits_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, peers: Peers
) -> None:
    inputs, theirs = exported(tmp_path, monkeypatch, "speculators", dtype, peers)
    for ours, read in zip(StoreReader(tmp_path / "store"), theirs, strict=True):
        assert read["input_ids"].tolist() == ours.input_ids.tolist()
        assert read["loss_mask"].tolist() == ours.loss_mask.astype(int).tolist()
        assert torch.equal(read["hidden_states"].float(), torch.tensor(as_float(ours.hidden_states)).flatten(1))
        # Its trainer norms what it calls the verifier's last states before the head: a direction is all that a norm leaves.
        before = read["verifier_last_hidden_states"].float()
        normed = torch.nn.functional.rms_norm(before, before.shape[-1:], inputs.norm)
        kept = torch.tensor(as_float(ours.final_hidden_states)) / inputs.norm
        expected = torch.nn.functional.rms_norm(kept, kept.shape[-1:], inputs.norm)
        tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
        torch.testing.assert_close(normed, expected, rtol=tolerance, atol=tolerance)
