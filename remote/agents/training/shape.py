"""What a drafter is built of, in numbers."""

from dataclasses import dataclass

from remote.agents.training.latent import Latent
from remote.agents.training.rope import Rope


@dataclass(frozen=True)
class DrafterShape:
    """Sizes of a drafter; `aux_layers` is how many of the target's hidden states it fuses.

    `normalise_aux` gives each of them a norm of its own before `fc` (SGLang's `fc_norm`): their sizes differ by an order
    of magnitude, and a drafter that sees little data never learns to weigh them. With `latent` it attends as DeepSeek's
    models do, and `num_key_value_heads` and `head_dim` say nothing.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    aux_layers: int
    rms_norm_eps: float
    rope: Rope
    max_position_embeddings: int
    normalise_aux: bool = False
    latent: Latent | None = None
