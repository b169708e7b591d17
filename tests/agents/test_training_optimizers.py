"""Which optimizer has which weights, and what Muon makes of a gradient."""

import pytest
import torch

from remote.agents.training.model import Drafter
from remote.agents.training.optimizers import optimizers
from remote.protocol.run import TrainingConfig
from tests.agents.test_training_measure import SHAPE


def names(drafter: Drafter, optimizer: torch.optim.Optimizer) -> set[str]:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return {name for name, parameter in drafter.named_parameters() if id(parameter) in held}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_each_weight_is_stepped_once(optimizer):
    drafter = Drafter(SHAPE)
    made = optimizers(drafter, TrainingConfig(optimizer=optimizer))
    held = [name for each in made.values() for name in names(drafter, each)]
    assert sorted(held) == sorted(name for name, _ in drafter.named_parameters())


def test_muon_has_the_matrices_between_states_and_leaves_head_and_norms():
    drafter = Drafter(SHAPE)
    made = optimizers(drafter, TrainingConfig(optimizer="muon"))
    projections = {f"midlayer.self_attn.{name}_proj.weight" for name in "qkvo"}
    feed_forward = {f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    assert names(drafter, made["muon"]) == {"fc.weight", *projections, *feed_forward}
    assert "lm_head.weight" in names(drafter, made["optimizer"])


def test_a_step_of_muon_is_nearly_orthogonal_and_of_the_size_of_an_adamw_step():
    drafter = Drafter(SHAPE)
    weight = drafter.midlayer.mlp.gate_proj.weight
    before = weight.detach().clone()
    # One direction has nearly all of the gradient, which plain descent would follow alone.
    weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    weight.grad += 100 * torch.ones_like(weight.grad)
    optimizers(drafter, TrainingConfig(optimizer="muon", learning_rate=1e-2))["muon"].step()
    moved = before - weight.detach()
    singular = torch.linalg.svdvals(moved)
    assert singular.max() / singular.median() < 2
    assert 0.1 < float(moved.square().mean().sqrt()) / 1e-2 < 0.3
