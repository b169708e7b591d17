"""How many bytes a run will write; upper estimates, from the shapes of the target and the drafter."""

from remote.agents.training.latent import Latent
from remote.pipeline.inputs import Conversations, Target
from remote.protocol.run import Dtype, RunConfig

_DTYPE_BYTES: dict[Dtype, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
_BYTES_PER_TOKEN_BESIDE_STATES = 9
"""`input_ids` int64 and `loss_mask` bool."""
_CHECKPOINT_BYTES_PER_PARAMETER = 12
"""float32 weights and AdamW's two moments."""
_CHECKPOINTS_BESIDE_THE_KEPT = 2
"""The best one, and the one that is being written."""


def store_bytes(run: RunConfig, target: Target, train: Conversations) -> int:
    """The hidden states of all tokens: the captured layers and the final state, in the engine's dtype."""
    rows = len(run.extraction.layer_ids) + 1
    width = rows * target.hidden_size * _DTYPE_BYTES[run.engine.dtype]
    return train.tokens * (width + _BYTES_PER_TOKEN_BESIDE_STATES)


def mapping_bytes(run: RunConfig, target: Target) -> int:
    """`d2t` (int64) and `t2d` (bool), each in two formats."""
    return 2 * (8 * run.vocabulary.draft_vocab_size + target.vocab_size) + 8192


def drafter_parameters(run: RunConfig, target: Target) -> int:
    """Trainable parameters of an EAGLE-3 drafter: fc, one decoder layer over [embedding; hidden], norms, head."""
    config, hidden = run.training.drafter, target.hidden_size
    heads = config.num_attention_heads or target.num_attention_heads
    if config.architecture == "mla" and target.latent is not None:
        attention = _latent_attention(target.latent, hidden, heads)
    else:
        attention = _grouped_attention(run, target, heads)
    fc = len(run.extraction.layer_ids) * hidden * hidden
    mlp = 3 * hidden * (config.intermediate_size or target.intermediate_size)
    return fc + attention + mlp + run.vocabulary.draft_vocab_size * hidden + 4 * hidden


def _grouped_attention(run: RunConfig, target: Target, heads: int) -> int:
    config, hidden = run.training.drafter, target.hidden_size
    kv_heads = config.num_key_value_heads or target.num_key_value_heads
    head_dim = config.head_dim or target.head_dim
    return 2 * hidden * (heads + 2 * kv_heads) * head_dim + heads * head_dim * hidden


def _latent_attention(latent: Latent, hidden: int, heads: int) -> int:
    narrow = latent.q_lora_rank + latent.kv_lora_rank
    down = 2 * hidden * (narrow + latent.qk_rope_head_dim) + narrow
    queries = latent.q_lora_rank * latent.qk_head_dim
    keys_and_values = latent.kv_lora_rank * (latent.qk_nope_head_dim + latent.v_head_dim)
    return down + heads * (queries + keys_and_values + latent.v_head_dim * hidden)


def training_bytes(run: RunConfig, target: Target) -> int:
    """Checkpoints, and the exported drafter in float32 at most."""
    at_once = run.training.checkpoints_kept + _CHECKPOINTS_BESIDE_THE_KEPT
    return drafter_parameters(run, target) * (at_once * _CHECKPOINT_BYTES_PER_PARAMETER + 4)
