"""What trackers are told, under the names that they are used to; pure."""

import json
from typing import Any

import msgspec

from remote.protocol.progress import DrafterMeasured, StepLogged
from remote.protocol.specs import TrainingSpec

LABELS = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "trackio": "trackio"}
"""What people call them, by the names of their modules."""

Figures = dict[str, float]


def figures_of(event: StepLogged | DrafterMeasured) -> Figures:
    """The figures of a logged step as `train/…`, those of a measured drafter as `validation/…`; what is not known or not finite is left out."""
    match event:
        case StepLogged():
            named: dict[str, float | None] = {
                "train/loss": event.loss,
                "train/acceptance_length": event.acceptance_length,
                "train/lr": event.learning_rate,
                "train/grad_norm": event.gradient_norm,
                "train/tokens_per_s": event.tokens_per_s,
                "train/input_wait": event.input_wait_fraction,
                "train/memory_bytes": event.memory_bytes,
                **_by_position("train/loss", event.losses),
                **_by_position("train/accuracy", event.accuracy),
            }
        case DrafterMeasured():
            named = {
                "validation/acceptance_length": event.acceptance_length,
                **_by_position("validation/accuracy", event.accuracy),
            }
    return {name: float(value) for name, value in named.items() if value is not None}


def _by_position(name: str, values: list[float]) -> Figures:
    return {f"{name}_{position}": value for position, value in enumerate(values)}


def config_of(spec: TrainingSpec) -> dict[str, Any]:
    """What the training was told, as a tracker's configuration."""
    return {
        "store": spec.store,
        "mapping": spec.mapping,
        "target_model": spec.target_model,
        "fingerprint": spec.fingerprint,
        "training": msgspec.to_builtins(spec.training),
    }


def as_markdown(values: dict[str, Any]) -> str:
    """Values as a block of JSON, for trackers that show text."""
    return f"```json\n{json.dumps(values, indent=2)}\n```"
