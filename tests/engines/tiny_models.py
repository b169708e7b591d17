"""Tiny checkpoints with random weights, for real engines; run by the engine's Python: `python tiny_models.py DIRECTORY`.

tiny-llama   LlamaForCausalLM, 4 layers; tiny-dsv3  DeepseekV3ForCausalLM (latent attention, experts, YaRN: Kimi-K2's kind), 6 layers.
copy-llama, copy-dsv3   untrained EAGLE-3 drafters that hand the last captured state to rows of the target's own head: they
propose again what the target said one token earlier, so they are right wherever greedy text repeats a token.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, DRAFT_VOCABULARY = 512, 128
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
CAPTURED = {"copy-llama": [1, 2, 3], "copy-dsv3": [2, 3, 5]}
"""Hugging Face layer ids that each drafter reads."""
IDS_FOR_SGLANG = {"copy-llama": [0, 1, 2], "copy-dsv3": [2, 3, 5]}
"""The same layers in SGLang's numbering, written down by hand: the test of `to_sglang` must not use it."""


def make_all(directory: Path) -> None:
    """Write every model below `directory`; the same bytes each time."""
    llama = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        **SPECIAL,
    )
    deepseek = DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_shared_experts=1,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        routed_scaling_factor=2.5,
        # Real widths: kernels for latent attention are compiled for 576 and 512 only.
        q_lora_rank=64,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=64,
        v_head_dim=64,
        head_dim=64,
        max_position_embeddings=2048,
        moe_layer_freq=1,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        num_nextn_predict_layers=0,
        ep_size=1,
        tie_word_embeddings=False,
        # SGLang's CPU rope wants scaling for this architecture; Kimi-K2 has YaRN too.
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 50000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 512,
            "beta_fast": 1.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        **SPECIAL,
    )
    for name, target in (("llama", LlamaForCausalLM(llama)), ("dsv3", DeepseekV3ForCausalLM(deepseek))):
        _randomise(target)
        target.to(torch.bfloat16).save_pretrained(directory / f"tiny-{name}")
        _tokenizer().save_pretrained(directory / f"tiny-{name}")
        _write_copycat(directory / f"copy-{name}", target.float().eval())


def _randomise(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            # The usual 0.02 gives near-identical logits; this gives another text for every prompt.
            parameter.data.normal_(0, 0.08, generator=generator)


def _tokenizer() -> PreTrainedTokenizerFast:
    names = ["<|bos|>", "<|eos|>", "<|pad|>", *(f"<|{n}|>" for n in range(3, VOCABULARY))]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*names[:3], *alphabet, *names[3 + len(alphabet) :]])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|pad|>"
    )


def _write_copycat(directory: Path, target: torch.nn.Module) -> None:
    hidden, heads, kv_heads, width, inner = target.config.hidden_size, 4, 2, 32, 128
    directory.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "max_position_embeddings": 2048,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "draft_vocab_size": DRAFT_VOCABULARY,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": IDS_FOR_SGLANG[directory.name],
            "use_aux_hidden_state": True,
        },
        **SPECIAL,
    }
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    kept = _frequent_tokens(target)
    mask = torch.zeros(VOCABULARY, dtype=torch.bool)
    mask[kept] = True
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> torch.Tensor:
        return torch.empty(*shape).normal_(0, 0.08, generator=generator)

    layer = {
        "self_attn.q_proj": random(heads * width, 2 * hidden),
        "self_attn.k_proj": random(kv_heads * width, 2 * hidden),
        "self_attn.v_proj": random(kv_heads * width, 2 * hidden),
        "self_attn.o_proj": torch.zeros(hidden, heads * width),
        "mlp.gate_proj": random(inner, hidden),
        "mlp.up_proj": random(inner, hidden),
        "mlp.down_proj": torch.zeros(hidden, inner),
        "hidden_norm": torch.ones(hidden),
        "input_layernorm": torch.ones(hidden),
        "post_attention_layernorm": torch.ones(hidden),
    }
    weights = {f"midlayer.{name}.weight": tensor for name, tensor in layer.items()} | {
        "fc.weight": torch.cat([torch.zeros(hidden, 2 * hidden), torch.eye(hidden)], 1),
        "norm.weight": target.model.norm.weight.data.clone(),
        "lm_head.weight": target.lm_head.weight.data[kept].contiguous(),
    }
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
    weights |= {"d2t": kept - torch.arange(DRAFT_VOCABULARY), "t2d": mask}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


@torch.no_grad()
def _frequent_tokens(target: torch.nn.Module) -> torch.Tensor:
    """The draft vocabulary: the tokens that the target's greedy text has most, ascending."""
    generator = torch.Generator().manual_seed(5)
    prompts = torch.randint(6, VOCABULARY, (64, 8), generator=generator)
    texts = target.generate(prompts, max_new_tokens=32, do_sample=False, eos_token_id=None, pad_token_id=2)[:, 8:]
    counts = torch.bincount(texts.reshape(-1), minlength=VOCABULARY) + 1e-3 * torch.rand(
        VOCABULARY, generator=generator
    )
    return counts.topk(DRAFT_VOCABULARY).indices.sort().values


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_all(Path(sys.argv[1]))
