"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434), of DeepSeek's and Kimi's models: its sizes, and what engines know of it."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from remote.agents.training.rope import Rope, Yarn
from remote.errors import Precondition

_Size = Annotated[int, Meta(ge=1)]


class Latent(msgspec.Struct, frozen=True):
    """Queries go through `q_lora_rank` columns, keys and values of all heads through `kv_lora_rank`; of a head's key
    `qk_rope_head_dim` columns turn with the position and are the same in every head, `qk_nope_head_dim` do not.
    """

    q_lora_rank: _Size
    kv_lora_rank: _Size
    qk_nope_head_dim: _Size
    qk_rope_head_dim: _Size
    v_head_dim: _Size

    @property
    def qk_head_dim(self) -> int:
        """Columns of a head's query and key."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


def read_latent(text: Mapping[str, Any]) -> Latent | None:
    """The sizes in the text part of a `config.json`; None where it does not name all of them."""
    try:
        return msgspec.convert({name: text.get(name) for name in Latent.__struct_fields__}, Latent)
    except msgspec.ValidationError:
        return None


def score_scale(latent: Latent, rope: Rope) -> float:
    """What the scores are multiplied by: YaRN's magnitude of all columns counts once for the query and once for the key."""
    return latent.qk_head_dim**-0.5 * rope.all_dim_magnitude**2


def servable(latent: Latent | None, rope: Rope) -> Latent:
    """`latent`; raises Precondition where no engine serves a drafter with it and `rope`."""
    if latent is None:
        raise Precondition(
            f"the config names not all of {', '.join(Latent.__struct_fields__)}: a drafter with latent attention takes them from there",
            hint='set training.drafter.architecture to "llama", which serves every target',
        )
    what = _unknown_to_engines(rope)
    if what is not None or latent.qk_rope_head_dim % 2:
        raise Precondition(
            f"no engine serves latent attention with {what or 'an odd qk_rope_head_dim'}",
            hint='set training.drafter.architecture to "llama"',
        )
    return latent


def _unknown_to_engines(rope: Rope) -> str | None:
    """SGLang 0.5.23 and vLLM 0.33 read every scaling as DeepSeek's YaRN, which has neither a magnitude of its own nor smooth edges, and
    take 1 and 0 for a scale that is missing, as transformers does only where both are.
    """
    yarn = rope.scaling
    if yarn is None:
        return None
    if not isinstance(yarn, Yarn):
        return f"a {type(yarn).__name__.lower()} rope"
    if yarn.attention_factor is not None or not yarn.truncate:
        return "a rope whose attention_factor or truncate is set"
    if bool(yarn.mscale) != bool(yarn.mscale_all_dim):
        return "a rope that names one of mscale and mscale_all_dim"
    return None
