"""A drafter that is there already, to be trained further: its weights, with its own sizes, rope and draft vocabulary.

A head's rows stand for the tokens of the mapping that it was trained with. With another one it learns again what it knew, and looks well
in training until then (SpecForge#534), so that is refused.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from remote.agents.training.export import CONFIG, MLA, ExportedMapping
from remote.agents.training.latent import read_latent, servable
from remote.agents.training.model import Drafter
from remote.agents.training.rope import read_rope
from remote.agents.training.shape import DrafterShape
from remote.agents.training.target import TargetConfig
from remote.engines.layer_ids import to_sglang
from remote.errors import NotFound, Precondition

_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_UNTRAINED = ("embed_tokens.weight", "d2t", "t2d")
_UNKNOWN_FLAGS = ("norm_before_fc", "norm_output", "norm_before_residual", "attention_bias", "mlp_bias")


class Initial(NamedTuple):
    """Where a training begins that does not begin anew: `weights` by the names of `Drafter`."""

    shape: DrafterShape
    weights: dict[str, Tensor]


def read_initial(directory: Path, mapping: ExportedMapping, target: TargetConfig, layer_ids: list[int]) -> Initial:
    """The drafter in `directory`, as SGLang and vLLM serve one (ours, SpecForge's, EAGLE's).

    Raises NotFound where there is none, Precondition where it is not one for this target, these layers (Hugging Face ids) and this mapping.
    """
    config = _read_config(directory)
    tensors = _read_tensors(directory)
    _check(directory, config, target, layer_ids)
    _check_mapping(directory, tensors, mapping)
    shape = _shape(directory, config, target, draft_vocab_size=len(mapping.d2t), aux_layers=len(layer_ids))
    weights = {name: tensor.float() for name, tensor in tensors.items() if name not in _UNTRAINED}
    with torch.device("meta"):
        wanted = {name: tuple(value.shape) for name, value in Drafter(shape).state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise Precondition(
            f"the weights in {directory} are not those that its config.json speaks of: "
            f"{', '.join(f'{name} is {found.get(name)}, not {wanted.get(name)}' for name in wrong[:3])}"
        )
    return Initial(shape, weights)


def _read_config(directory: Path) -> dict[str, Any]:
    try:
        return json.loads((directory / CONFIG).read_text())
    except FileNotFoundError as error:
        raise NotFound(f"there is no drafter in {directory} to begin with: {CONFIG} is missing") from error
    except ValueError as error:
        raise Precondition(f"{directory / CONFIG} is no JSON: {error}") from error


def _read_tensors(directory: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                tensors[name.removeprefix("model.").replace("layers.0.", "midlayer.")] = file.get_tensor(name)
    return tensors


def _check(directory: Path, config: dict[str, Any], target: TargetConfig, layer_ids: list[int]) -> None:
    eagle = config.get("eagle_config") or {}
    unknown = [flag for flag in _UNKNOWN_FLAGS if config.get(flag) or eagle.get(flag)]
    if MLA in (config.get("architectures") or ()) and not config.get("rope_interleave", True):
        unknown.append("rope_interleave = false")
    if "hidden_size" not in config or config.get("num_hidden_layers", 1) != 1 or unknown:
        what = ", ".join(unknown) or "not one Llama layer"
        raise Precondition(f"the drafter in {directory} is of a kind that is not trained here: {what}")
    for key, wanted in (("hidden_size", target.hidden_size), ("vocab_size", target.vocab_size)):
        if config.get(key) != wanted:
            raise Precondition(
                f"the drafter in {directory} is for a {key} of {config.get(key)}, the target has {wanted}"
            )
    served = to_sglang(layer_ids, architecture=target.architecture, num_hidden_layers=target.num_hidden_layers)
    for named, wanted in ((config.get(_LAYER_IDS), layer_ids), (eagle.get(_LAYER_IDS), served)):
        if named is not None and list(named) != wanted:
            raise Precondition(
                f"the drafter in {directory} reads the layers {named} where the store's are {wanted}",
                hint="extract the layers that it was trained on",
            )


def _check_mapping(directory: Path, tensors: dict[str, Tensor], mapping: ExportedMapping) -> None:
    own = tensors.get("d2t")
    if own is None or not torch.equal(own.to(torch.int64), mapping.d2t):
        what = "does not say which tokens its head stands for" if own is None else "has another draft vocabulary"
        raise Precondition(
            f"the drafter in {directory} {what}: with the mapping of this training its head would be wrong",
            hint="name the mapping that it was trained with as vocabulary.source (or --mapping); `roost vocabulary convert` reads "
            "those of other trainers",
        )


def _shape(
    directory: Path, config: dict[str, Any], target: TargetConfig, *, draft_vocab_size: int, aux_layers: int
) -> DrafterShape:
    rope = read_rope(config)
    try:
        heads = config["num_attention_heads"]
        return DrafterShape(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_attention_heads=heads,
            num_key_value_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            draft_vocab_size=draft_vocab_size,
            aux_layers=aux_layers,
            rms_norm_eps=config["rms_norm_eps"],
            rope=rope,
            max_position_embeddings=max(config.get("max_position_embeddings", 0), target.max_position_embeddings),
            normalise_aux=bool(config.get("fc_norm")),
            latent=servable(read_latent(config), rope) if MLA in (config.get("architectures") or ()) else None,
        )
    except KeyError as error:
        raise Precondition(f"{directory / CONFIG} does not say {error}") from error
