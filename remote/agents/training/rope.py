"""How a drafter knows positions: the rotary embedding of its target's family, and what both engines are told of it.

Each kind means what transformers 5.19 makes of it (`modeling_rope_utils.py`), over the whole of the drafter's head. SGLang 0.5.23
and vLLM 0.33 read `rope_theta` and `rope_scaling` of the exported config; what they would not read alike is put in terms that they do.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from remote.errors import Precondition

_Stretch = Annotated[float, Meta(ge=1)]
_Positive = Annotated[float, Meta(gt=0)]
_Positions = Annotated[int, Meta(gt=0)]

_DEFAULT_THETA = 10000.0
_OF_FULL_ATTENTION = "full_attention"
_UNSCALED = ("default", "mrope")
"""A model that also sees images turns by three coordinates, which are the same one for text."""


class Linear(msgspec.Struct, frozen=True, tag_field="rope_type", tag="linear"):
    """Every position divided by `factor`."""

    factor: _Stretch


class Dynamic(msgspec.Struct, frozen=True, tag_field="rope_type", tag="dynamic"):
    """A base that grows with the text; here that of the longest text, `factor` times what the target was trained on.

    SGLang takes that base for every text, vLLM never, transformers beyond the trained length: no other one holds at all lengths.
    """

    factor: _Stretch


class Llama3(msgspec.Struct, frozen=True, tag_field="rope_type", tag="llama3"):
    """Llama 3.1's: long wavelengths are stretched by `factor`, short ones stay, and between the two it goes over smoothly."""

    factor: _Stretch
    low_freq_factor: _Positive
    high_freq_factor: _Positive
    original_max_position_embeddings: _Positions

    def __post_init__(self) -> None:
        """Raises ValueError where there is nothing to go over between."""
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError("high_freq_factor must be above low_freq_factor")


class Yarn(msgspec.Struct, frozen=True, tag_field="rope_type", tag="yarn", omit_defaults=True):
    """YaRN (arXiv:2309.00071): what turns less than `beta_slow` times over the original positions is stretched, what turns more
    than `beta_fast` times stays; `mscale` with `mscale_all_dim`, or `attention_factor`, say the magnitude of the result.
    """

    factor: _Stretch
    original_max_position_embeddings: _Positions
    beta_fast: _Positive = 32
    beta_slow: _Positive = 1
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: _Positive | None = None
    truncate: bool = True

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._magnitude(self.mscale) / self._magnitude(self.mscale_all_dim)
        return self._magnitude(1.0)

    @property
    def all_dim_magnitude(self) -> float:
        """The magnitude that `mscale_all_dim` speaks of; 1 without it."""
        return self._magnitude(self.mscale_all_dim or 0.0)

    def _magnitude(self, mscale: float) -> float:
        return 0.1 * mscale * math.log(self.factor) + 1.0

    def exported(self) -> dict[str, Any]:
        """Both engines know the pair of scales; a factor of its own SGLang calls `attn_factor`, and multiplies by it."""
        if self.mscale and self.mscale_all_dim and self.attention_factor is None:
            return msgspec.to_builtins(self)
        known = msgspec.to_builtins(msgspec.structs.replace(self, mscale=None, mscale_all_dim=None))
        return (
            known if self.attention_factor is None else {**known, "attn_factor": self.magnitude / self._magnitude(1.0)}
        )


class Rope(msgspec.Struct, frozen=True):
    """A rotary embedding: its base, and how it reaches positions that the target was not first trained on."""

    theta: float = _DEFAULT_THETA
    scaling: Linear | Dynamic | Llama3 | Yarn | None = None

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        return self.scaling.magnitude if isinstance(self.scaling, Yarn) else 1.0

    @property
    def all_dim_magnitude(self) -> float:
        """What DeepSeek's models multiply queries and keys by as a whole, beside the part that turns: `mscale_all_dim` says it."""
        scaling = self.scaling
        return scaling.all_dim_magnitude if isinstance(scaling, Yarn) else 1.0

    @property
    def reach(self) -> float:
        """How many times the target's `max_position_embeddings` the exported one is, where no engine multiplies by itself."""
        return self.scaling.factor if isinstance(self.scaling, Dynamic) else 1.0

    def base(self, head_dim: int) -> float:
        """The base that the frequencies of a head are powers of."""
        if not isinstance(self.scaling, Dynamic):
            return self.theta
        factor = self.scaling.factor
        return self.theta * (factor * factor - (factor - 1)) ** (head_dim / (head_dim - 2))

    def exported(self, head_dim: int) -> dict[str, Any]:
        """`rope_theta` and `rope_scaling` of the drafter's `config.json`."""
        scaling = self.scaling
        if isinstance(scaling, Yarn):
            told = scaling.exported()
        else:
            told = None if scaling is None or isinstance(scaling, Dynamic) else msgspec.to_builtins(scaling)
        return {"rope_theta": self.base(head_dim), "rope_scaling": told}


_KINDS = {"linear": Linear, "dynamic": Dynamic, "llama3": Llama3, "yarn": Yarn}


def read_rope(text: Mapping[str, Any]) -> Rope:
    """The rotary embedding that the text part of a `config.json` speaks of, in the words of transformers 4 or 5.

    Raises Precondition for a kind that a drafter cannot be served with, or one that lacks what it needs.
    """
    parameters = text.get("rope_scaling") or text.get("rope_parameters") or {}
    if any(isinstance(value, dict) for value in parameters.values()):
        parameters = parameters.get(_OF_FULL_ATTENTION) or {}
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    theta = float(parameters.get("rope_theta") or text.get("rope_theta") or _DEFAULT_THETA)
    if kind in _UNSCALED:
        return Rope(theta)
    if kind not in _KINDS:
        raise Precondition(
            f"the target's rope type is {kind!r}, and no drafter can be trained with it",
            hint=f"known are default, {', '.join(_KINDS)}: those that SGLang, vLLM and transformers make the same positions of",
        )
    known = {name: value for name, value in _completed(parameters, text).items() if value is not None}
    try:
        return Rope(theta, msgspec.convert({**known, "rope_type": kind}, _KINDS[kind]))
    except msgspec.ValidationError as error:
        raise Precondition(
            f"the target's {kind} rope is not fully described: {error}",
            hint="look at rope_scaling (or rope_parameters) in the target's config.json",
        ) from error


def _completed(parameters: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """`parameters` with what transformers takes from elsewhere in the config."""
    longest = text.get("max_position_embeddings")
    original = (
        text.get("original_max_position_embeddings") or parameters.get("original_max_position_embeddings") or longest
    )
    factor = parameters.get("factor")
    if factor is None and original and longest:
        factor = longest / original
    return {**parameters, "original_max_position_embeddings": original, "factor": factor}
