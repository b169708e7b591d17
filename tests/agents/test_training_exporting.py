"""A drafter of any checkpoint of a training, as the training itself would have left it."""

import json
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from remote.artifacts.manifest import read_manifest, verify
from remote.protocol.specs import DrafterExportSpec, DrafterLayout

from .test_training_worker import Inputs, Run


class Trained:
    """A finished training with checkpoints at 10, 20 and 30, and its exports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spec = Inputs(directory).spec(steps=30, checkpoint_every=10, checkpoints_kept=3)
        assert Run(directory / "training", self.spec).wait() == 0
        self.count = 0

    def export(
        self, place: str, step: int | None = None, layout: DrafterLayout = "sglang", **changes
    ) -> tuple[int, Run]:
        self.count += 1
        spec = DrafterExportSpec(
            training=msgspec.structs.replace(self.spec, **changes), directory=place, step=step, layout=layout
        )
        run = Run(self.directory / f"export-{self.count}", spec, "exporting")
        return run.wait(), run


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


def test_the_best_checkpoint_gives_the_drafter_that_the_training_left(trained):
    code, run = trained.export("best")
    assert code == 0
    left, made = Path(trained.spec.drafter), trained.directory / "best"
    verify(made)
    assert (made / "config.json").read_bytes() == (left / "config.json").read_bytes()
    wanted, found = (load_file(place / "model.safetensors") for place in (left, made))
    assert wanted.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    assert read_manifest(made).fingerprint == trained.spec.fingerprint
    summaries = [read_manifest(place).properties["summary"] for place in (left, made)]
    assert summaries[0]["exported_step"] == summaries[1]["exported_step"]
    assert run.result().summary["validation_acceptance_length"] > 1


def test_the_checkpoint_of_a_step_is_exported_once_and_never_over_another(trained):
    assert trained.export("ten", step=10)[0] == 0
    before = (trained.directory / "ten/model.safetensors").read_bytes()
    saved = torch.load(Path(trained.spec.checkpoints) / "step-00000010/state.pt", weights_only=True)
    found = load_file(trained.directory / "ten/model.safetensors")
    assert torch.equal(found["fc.weight"], saved["drafter"]["fc.weight"])
    code, again = trained.export("ten", step=10)
    assert code == 0
    assert again.result().summary["exported_step"] == 10
    code, other = trained.export("ten", step=20)
    assert code == 5
    assert "not step 20 of this training" in (other.directory / "failure.json").read_text()
    assert (trained.directory / "ten/model.safetensors").read_bytes() == before


def test_a_step_without_a_checkpoint_is_refused_with_those_that_there_are(trained):
    code, run = trained.export("none", step=15)
    assert code == 5
    assert "there are: 10, 20, 30" in (run.directory / "failure.json").read_text()
    code, run = trained.export("none", fingerprint="another")
    assert code == 5
    assert not (trained.directory / "none").exists()


def test_in_the_layout_of_speculators_it_is_the_same_drafter_under_their_names(trained):
    assert trained.export("theirs", step=20, layout="speculators")[0] == 0
    assert trained.export("ours", step=20)[0] == 0
    ours, theirs = (load_file(trained.directory / place / "model.safetensors") for place in ("ours", "theirs"))
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in ours.items()}
    embedding = theirs.pop("embed_tokens.weight")
    assert renamed.keys() == theirs.keys()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in renamed.items())
    target = load_file(Path(trained.spec.target_model) / "model.safetensors")
    assert torch.equal(embedding, target["model.embed_tokens.weight"])
    config = json.loads((trained.directory / "theirs/config.json").read_text())
    assert config["norm_before_residual"] is False
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert config["speculators_config"]["verifier"]["name_or_path"] == trained.spec.target_model
    assert trained.export("ours", step=20, layout="speculators")[0] == 5
