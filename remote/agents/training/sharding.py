"""A drafter that is split over the ranks (FSDP2): each keeps a share of every weight, gradient and moment, and has all of them whole only
while a step is computed.
"""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from remote.agents.training.model import Drafter


def shard(drafter: Drafter, ranks: int) -> None:
    """Split `drafter`, which is the same on every rank; its gradients are then sums over the ranks."""
    device = drafter.fc.weight.device.type
    fully_shard(drafter, mesh=init_device_mesh(device, (ranks,)))
    assert isinstance(drafter, FSDPModule)
    drafter.set_gradient_divide_factor(1.0)
    drafter.set_force_sum_reduction_for_comms(True)


def expect_backward(drafter: Drafter, *, last: bool) -> None:
    """Whether the next backward pass is a rank's `last` of the step: the ranks, whose batches may be of different number, meet in that one."""
    if isinstance(drafter, FSDPModule):
        drafter.set_requires_gradient_sync(last)
        drafter.set_reshard_after_backward(last)


def local(tensor: Tensor) -> Tensor:
    """This rank's share of `tensor`, or all of it where it is not split."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def joined(tensor: Tensor) -> Tensor:
    """All of `tensor`, on every rank; they meet here."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole(state: Any, *, kept: bool) -> Any:  # noqa: ANN401 - a state dict holds anything
    """`state` with its tensors joined on the CPU; the ranks meet here, and what is not `kept` is None."""
    if isinstance(state, dict):
        return {name: whole(value, kept=kept) for name, value in state.items()}
    if isinstance(state, DTensor):
        tensor = state.full_tensor()
        return tensor.cpu() if kept else None
    return state


def like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """`tensor`, which every rank has, split as `parameter` is."""
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    placed = tensor.to(parameter.device, parameter.dtype)
    return distribute_tensor(placed, parameter.device_mesh, parameter.placements, src_data_rank=None)


def load_weights(drafter: Drafter, weights: dict[str, Tensor]) -> None:
    """Take over whole `weights`."""
    named = drafter.state_dict()
    drafter.load_state_dict({name: like(tensor, named[name]) for name, tensor in weights.items()})


def load_moments(optimizer: torch.optim.Optimizer, moments: dict[str, Any]) -> None:
    """Take over an optimizer's whole state."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    split = {
        number: {name: like(value, parameters[number]) for name, value in entry.items()}
        for number, entry in moments["state"].items()
    }
    optimizer.load_state_dict({**moments, "state": split})
