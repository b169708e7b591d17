"""A training that begins as a drafter which has learned before, and keeps its draft vocabulary."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from remote.agents.training.export import ExportedMapping
from remote.agents.training.initial import read_initial
from remote.agents.training.target import read_target_config
from remote.artifacts.mapping import Mapping
from remote.errors import NotFound, Precondition

from .test_training_worker import LAYERS, VOCABULARY, Inputs, Run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    """With a drafter that was trained on them in `a/drafter`."""
    made = Inputs(tmp_path_factory.mktemp("initial"))
    assert Run(made.directory / "first", made.spec(steps=20, checkpoint_every=20)).wait() == 0
    return made


@pytest.fixture
def drafter(inputs: Inputs, tmp_path: Path) -> Path:
    return shutil.copytree(inputs.directory / "a/drafter", tmp_path / "drafter")


def mapping(ids: np.ndarray | None = None) -> ExportedMapping:
    made = Mapping.from_target_ids(np.arange(24) if ids is None else ids, VOCABULARY)
    return ExportedMapping(torch.from_numpy(made.d2t.copy()), torch.from_numpy(made.t2d.copy()))


def read(inputs: Inputs, drafter: Path, **changes):
    wanted = {"mapping": mapping(), "layer_ids": LAYERS, **changes}
    return read_initial(
        drafter, wanted["mapping"], read_target_config(inputs.directory / "target"), wanted["layer_ids"]
    )


def change(drafter: Path, **settings) -> None:
    path = drafter / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_where_nothing_more_is_learned_the_same_drafter_comes_out(inputs, drafter):
    spec = inputs.spec(output="again", steps=2, checkpoint_every=2, learning_rate=0.0, init_from=str(drafter))
    run = Run(inputs.directory / "again-job", spec)
    assert run.wait() == 0, run.text()
    before, after = (load_file(place / "model.safetensors") for place in (drafter, Path(spec.drafter)))
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    first = Run(
        inputs.directory / "anew-job", msgspec.structs.replace(inputs.spec(output="anew", steps=2, log_every=1))
    )
    assert first.wait() == 0
    assert run.result().summary["loss"] < first.result().summary["loss"] / 2


def test_other_trainers_names_and_sizes_are_taken_over(inputs, drafter):
    tensors = load_file(drafter / "model.safetensors")
    renamed = {
        name.replace("midlayer.", "layers.0."): value for name, value in tensors.items() if "fc_norm" not in name
    }
    save_file({**renamed, "embed_tokens.weight": torch.zeros(VOCABULARY, 32)}, drafter / "model.safetensors")
    change(drafter, fc_norm=False, rope_scaling={"type": "linear", "factor": 2.0})
    found = read(inputs, drafter)
    assert found.shape.normalise_aux is False
    assert found.shape.rope.scaling is not None
    assert torch.equal(found.weights["midlayer.mlp.up_proj.weight"], tensors["midlayer.mlp.up_proj.weight"])


def test_specforge_534_another_mapping_is_refused_and_the_way_to_keep_it_said(inputs, drafter):
    with pytest.raises(Precondition, match="has another draft vocabulary") as refused:
        read(inputs, drafter, mapping=mapping(np.arange(1, 25)))
    assert "the mapping that it was trained with as vocabulary.source" in (refused.value.info.hint or "")
    tensors = load_file(drafter / "model.safetensors")
    del tensors["d2t"]
    save_file(tensors, drafter / "model.safetensors")
    with pytest.raises(Precondition, match="does not say which tokens"):
        read(inputs, drafter)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"norm_before_residual": True}, "norm_before_residual"),
        ({"num_hidden_layers": 2}, "not one Llama layer"),
        ({"hidden_size": 64}, "a hidden_size of 64, the target has 32"),
        ({"intermediate_size": 64}, "are not those that its config.json speaks of"),
        ({"rms_norm_eps": None, "num_attention_heads": 4, "fc_norm": False}, "fc_norm.0.weight is"),
    ],
)
def test_what_is_not_trained_here_is_refused(inputs, drafter, settings, said):
    change(drafter, **settings)
    with pytest.raises(Precondition, match=said):
        read(inputs, drafter)


def test_another_layers_drafter_and_none_at_all_are_refused(inputs, drafter, tmp_path):
    with pytest.raises(Precondition, match="reads the layers"):
        read(inputs, drafter, layer_ids=[1, 2])
    with pytest.raises(NotFound, match="no drafter"):
        read(inputs, tmp_path / "nowhere")
