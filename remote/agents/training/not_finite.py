"""What is kept of a step whose loss or gradient is not finite, so that a person can look at it.

The file is plain safetensors: `safetensors.torch.load_file(path)` gives every tensor, `safe_open(path, "pt").metadata()` the step, the
windows of each batch, which lie one after another (sample, start, stop), and the parameters whose gradients are not finite.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from remote.agents.training.batches import Window
from remote.agents.training.model import Drafter
from remote.agents.training.objective import Batch
from remote.agents.training.sharding import local


def samples_not_finite(batches: list[tuple[list[Window], Batch]]) -> list[int]:
    """The samples whose stored states hold NaN or infinity."""
    return [
        window.sample
        for windows, batch in batches
        for window, place in zip(windows, batch.places([window.length for window in windows]), strict=True)
        if not (batch.aux[place].isfinite().all() and batch.final[place].isfinite().all())
    ]


def _bad_gradients(drafter: Drafter) -> list[str]:
    return [
        name
        for name, parameter in drafter.named_parameters()
        if parameter.grad is not None and not local(parameter.grad).isfinite().all()
    ]


def first_not_finite(drafter: Drafter) -> str:
    """What of the drafter is not finite, in words: a weight before a gradient, a gradient before the loss alone."""
    for name, parameter in drafter.named_parameters():
        if not local(parameter).isfinite().all():
            return f"the weight {name}"
    gradients = _bad_gradients(drafter)
    return f"the gradient of {gradients[0]}" if gradients else "the loss itself"


def _tensors(number: int, batch: Batch) -> dict[str, Tensor]:
    parts = {
        "input_ids": batch.input_ids,
        "loss_mask": batch.loss_mask,
        "hidden_states": batch.aux,
        "final_hidden_states": batch.final,
    }
    return {f"batch_{number}.{name}": tensor.cpu().contiguous() for name, tensor in parts.items()}


def save_batches(
    path: Path, batches: list[tuple[list[Window], Batch]], drafter: Drafter, *, step: int, with_weights: bool
) -> str:
    """Write the batches of a rank into `path`, with the drafter's weights before the step; says where they are and how to load them."""
    weights = drafter.state_dict() if with_weights else {}
    tensors = {f"drafter.{name}": value.cpu().contiguous() for name, value in weights.items()}
    for number, (_, batch) in enumerate(batches):
        tensors |= _tensors(number, batch)
    windows = [[[window.sample, window.start, window.stop] for window in windows] for windows, _ in batches]
    metadata = {"step": str(step), "windows": json.dumps(windows), "gradients": json.dumps(_bad_gradients(drafter))}
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with torch.no_grad():
            save_file(tensors, part, metadata=metadata)
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        return f"Its batch could not be saved: {error}"
    return f'Its batch is in {path}; load it with `safetensors.torch.load_file("{path}")`'
