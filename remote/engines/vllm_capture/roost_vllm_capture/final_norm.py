"""The target's last norm, applied to what vLLM keeps from before it."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

NAMES = ("model.norm.weight", "language_model.model.norm.weight", "model.language_model.norm.weight")
"""Where checkpoints keep its weight: plain models, and those that wrap a language model."""

_SLICE = 1024


class FinalNorm:
    """Root mean square norm in float32, rounded as transformers does: weight * (x / rms(x)) with the quotient in the states' dtype."""

    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        self._weight = weight
        self._epsilon = epsilon

    @classmethod
    def read(cls, model: Path, device: torch.device, dtype: torch.dtype) -> "FinalNorm":
        """From a checkpoint's directory; raises KeyError where it has no such weight."""
        config: dict[str, Any] = json.loads((model / "config.json").read_bytes())
        text = config.get("text_config", config)
        return cls(_read_weight(model).to(device=device, dtype=dtype), float(text["rms_norm_eps"]))

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """The states [n, H] after the norm, in their own dtype; a slice at a time, for the sums are in float32."""
        normed = torch.empty_like(states, memory_format=torch.contiguous_format)
        for start in range(0, len(states), _SLICE):
            rows = states[start : start + _SLICE].float()
            rows *= torch.rsqrt(rows.square().mean(-1, keepdim=True) + self._epsilon)
            normed[start : start + _SLICE] = self._weight * rows.to(states.dtype)
        return normed


def _read_weight(model: Path) -> torch.Tensor:
    index = model / "model.safetensors.index.json"
    places: dict[str, str] = json.loads(index.read_bytes())["weight_map"] if index.exists() else {}
    for path in sorted(model.glob("*.safetensors")):
        wanted = [name for name in NAMES if places.get(name, path.name) == path.name]
        with safe_open(path, "pt") as file:
            names = set(file.keys()) if wanted else set()
            for name in wanted:
                if name in names:
                    return file.get_tensor(name)
    raise KeyError(f"{model} has no final norm under any of {', '.join(NAMES)}")
