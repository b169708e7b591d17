"""What an engine would accept without a word and then serve badly: a drafter is compared with its target before the launch.

The rules follow SGLang 0.5.23 (`srt/models/llama_eagle3.py`, `kimi_k25_eagle3.py`): it skips tensors whose names it does not
know, leaves those that are missing at random, takes draft ids for target ids without `d2t`, and reads layer ids only from
`eagle_config`. vLLM 0.33 (`v1/worker/gpu_model_runner.py`) reads them beside it first, and counts as Hugging Face does.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from remote.artifacts.mapping import Mapping as VocabularyMapping
from remote.artifacts.mapping_pair import check_pair
from remote.artifacts.safetensors_file import open_safetensors
from remote.engines.layer_ids import to_sglang
from remote.errors import Precondition
from remote.protocol.reports import Finding
from remote.protocol.run import EngineName, SpeculationConfig
from remote.protocol.specs import EngineSection

LLAMA = "LlamaForCausalLMEagle3"
MLA = "Eagle3DeepseekV2ForCausalLM"
ARCHITECTURES = (LLAMA, MLA)

_Array = np.ndarray[Any, Any]
_EXPORT = "export the drafter again"
_RENAMED = (
    ("midlayer", "layers.0"),
    ("aux_norm_low", "fc_norm.0"),
    ("aux_norm_mid", "fc_norm.1"),
    ("aux_norm_high", "fc_norm.2"),
)
_UNUSED = ("embed_tokens.weight", "d2t", "t2d")
_DEFAULT_AUX_LAYERS = 3
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_NEEDED = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "num_hidden_layers")
_NEEDED_BY_MLA = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


class Expectations(NamedTuple):
    """What the drafter is to be served with: the target's `config.json`, the context in tokens, how far it speculates.

    `section` of the run file describes the engine. `layer_ids` are the Hugging Face ids that were captured for it, `mapping` is the one that it was trained with; None where
    that is not known.
    """

    target_config: Mapping[str, Any]
    context_length: int | None
    speculation: SpeculationConfig
    engine: EngineName = "sglang"
    section: EngineSection = "engine"
    layer_ids: list[int] | None = None
    mapping: VocabularyMapping | None = None

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The language model's part of the target's config."""
        return self.target_config.get("text_config", self.target_config)

    @property
    def served_context(self) -> int | None:
        """Tokens that the engine will accept: what it is told, else what the target can do."""
        return self.context_length or self.text_config.get("max_position_embeddings")


def read_layer_ids(config: Mapping[str, Any], engine: EngineName) -> list[int] | None:
    """The layers that a drafter's `config.json` names to `engine`, by that engine's count; None where it names none."""
    if engine == "vllm":
        return config.get(_LAYER_IDS)
    return (config.get("eagle_config") or {}).get(_LAYER_IDS)


def check_drafter(directory: Path, expected: Expectations) -> list[Finding]:
    """Everything that is wrong with serving the drafter in `directory` so; only an error forbids it."""
    try:
        config = json.loads((directory / "config.json").read_bytes())
        tensors = _read_tensors(directory)
    except (OSError, ValueError) as error:
        return [_error("unreadable", f"the drafter {directory} cannot be read: {error}", _EXPORT)]
    except Precondition as error:
        return [_error("unreadable", error.info.message, _EXPORT)]
    if not isinstance(config, dict):
        return [_error("unreadable", f"{directory / 'config.json'} holds no object", _EXPORT)]
    architecture = (config.get("architectures") or [None])[0]
    if architecture not in ARCHITECTURES:
        return [_wrong_architecture(config, architecture)]
    needed = _NEEDED if architecture == LLAMA else _NEEDED + _NEEDED_BY_MLA
    missing = [key for key in needed if not isinstance(config.get(key), int)]
    if missing:
        return [_error("config", f"its config.json does not say {', '.join(missing)}", _EXPORT)]
    return [
        *_check_sizes(config, expected),
        *_check_layer_ids(config, expected),
        *_check_speculation(expected.speculation),
        *_check_vocabulary(config, tensors, expected),
        *_check_tensors(config, architecture, tensors),
    ]


def _error(code: str, message: str, fix: str) -> Finding:
    return Finding(code=f"drafter-{code}", severity="error", message=message, fix=fix)


def _warning(code: str, message: str, fix: str) -> Finding:
    return Finding(code=f"drafter-{code}", severity="warning", message=message, fix=fix)


def _read_tensors(directory: Path) -> "dict[str, _Array]":
    """All tensors under the names that the engine knows them by."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError("no *.safetensors in it")
    found: dict[str, _Array] = {}
    for file in files:
        for name, array in open_safetensors(file).arrays.items():
            for old, new in _RENAMED:
                name = name.replace(old, new)  # noqa: PLW2901 - each old name in its turn
            found[name.removeprefix("model.")] = array
    return found


def _wrong_architecture(config: dict[str, Any], architecture: object) -> Finding:
    if "speculators_model_type" in config or "speculators_config" in config:
        message = "this is a checkpoint of speculators, which SGLang cannot load as it is"
        return _error("architecture", message, f"convert it to {LLAMA}")
    names = " or ".join(ARCHITECTURES)
    return _error("architecture", f"its architecture is {architecture}, an EAGLE-3 drafter is {names}", _EXPORT)


def _check_sizes(config: dict[str, Any], expected: Expectations) -> Iterator[Finding]:
    target = expected.text_config
    width = config.get("target_hidden_size", config.get("hidden_size"))
    if width != target.get("hidden_size"):
        message = f"it reads hidden states of {width}, the target's have {target.get('hidden_size')}"
        yield _error("hidden-size", message, "serve it with the target that it was trained for")
    if config.get("vocab_size") != target.get("vocab_size"):
        message = (
            f"its target vocabulary has {config.get('vocab_size')} tokens, the target's {target.get('vocab_size')}"
        )
        yield _error("vocab-size", message, "serve it with the target that it was trained for")
    if config.get("num_hidden_layers") != 1:
        message = f"it has {config.get('num_hidden_layers')} layers, EAGLE-3 serves one"
        yield _error("layers", message, _EXPORT)
    reach, context = config.get("max_position_embeddings"), expected.served_context
    if reach is None or (context is not None and reach < context):
        yield _error(
            "context",
            f"it knows positions up to {reach}, the server accepts {context} tokens: beyond that acceptance collapses",
            f"set {expected.section}.context_length to what it knows, or raise max_position_embeddings in its config.json",
        )


def _check_layer_ids(config: dict[str, Any], expected: Expectations) -> Iterator[Finding]:
    if expected.engine == "vllm":
        yield from _check_layer_ids_for_vllm(config, expected)
        return
    served = read_layer_ids(config, expected.engine)
    if served is None:
        stray = " (they stand beside eagle_config, where the engine does not look)" if _stray_ids(config) else ""
        yield _error(
            "layer-ids-missing",
            f"eagle_config names no eagle_aux_hidden_state_layer_ids{stray}: the engine would take its own",
            "write eagle_config.eagle_aux_hidden_state_layer_ids into its config.json",
        )
        return
    if expected.layer_ids is None:
        return
    try:
        wanted = to_sglang(
            expected.layer_ids,
            architecture=expected.target_config["architectures"][0],
            num_hidden_layers=int(expected.text_config["num_hidden_layers"]),
        )
    except (ValueError, KeyError) as error:
        yield _error("layer-ids", f"the captured layer ids cannot be served: {error}", "capture other layers")
        return
    if served != wanted:
        yield _error(
            "layer-ids",
            f"it was trained on layers {expected.layer_ids} (by the engine's count {wanted}) "
            f"and its config.json has {served}: it would read other states than it learned from",
            f"set eagle_config.eagle_aux_hidden_state_layer_ids to {wanted}, or train it on what it is to be served with",
        )


def _check_layer_ids_for_vllm(config: dict[str, Any], expected: Expectations) -> Iterator[Finding]:
    served = read_layer_ids(config, expected.engine)
    if served is None:
        yield _error(
            "layer-ids-missing",
            f"its config.json has no {_LAYER_IDS} beside eagle_config: vLLM would take those of SGLang, which counts otherwise",
            f"write {_LAYER_IDS} with the Hugging Face ids into its config.json",
        )
    elif expected.layer_ids is not None and served != expected.layer_ids:
        yield _error(
            "layer-ids",
            f"it was trained on layers {expected.layer_ids} and its config.json has {served} for vLLM: "
            "it would read other states than it learned from",
            f"set {_LAYER_IDS} to {expected.layer_ids}, or train it on what it is to be served with",
        )


def _stray_ids(config: dict[str, Any]) -> bool:
    return any("aux_hidden_state_layer_ids" in key for key in config)


def _check_speculation(speculation: SpeculationConfig) -> Iterator[Finding]:
    steps, top_k, tokens = speculation.num_steps, speculation.top_k, speculation.draft_tokens
    most = 1 + top_k + max(0, steps - 1) * top_k * top_k
    if top_k == 1 and tokens != steps + 1:
        message = f"with top_k 1 and {steps} steps the engine drafts {steps + 1} tokens, whatever draft_tokens = {tokens} says"
        yield _error("speculation", message, f"set speculation.draft_tokens = {steps + 1}")
    elif tokens > most:
        message = f"a tree of {steps} steps with top_k {top_k} has {most} tokens, not draft_tokens = {tokens}"
        yield _error("speculation", message, f"lower speculation.draft_tokens to {most} or raise the others")


def _check_vocabulary(
    config: dict[str, Any], tensors: "dict[str, _Array]", expected: Expectations
) -> Iterator[Finding]:
    vocab, draft = config.get("vocab_size"), config.get("draft_vocab_size")
    if draft is None:
        message = "its config.json has no draft_vocab_size: the engine would borrow the target's head for it"
        yield _error("draft-vocab-size", message, "write draft_vocab_size into its config.json")
        return
    d2t, t2d = tensors.get("d2t"), tensors.get("t2d")
    if d2t is None:
        if draft != vocab:
            message = "it has no d2t: the engine would take its draft ids for the target's, without an error"
            yield _error("mapping-missing", message, f"{_EXPORT} with its mapping")
        return
    if d2t.dtype != np.int64 or d2t.shape != (draft,):
        message = f"d2t is {d2t.dtype}{list(d2t.shape)}, int64[{draft}] is needed"
        yield _error("mapping", message, f"{_EXPORT} with its mapping")
        return
    if t2d is None:
        yield _warning("mask-missing", "it has no t2d, so its d2t cannot be checked against it", _EXPORT)
    elif t2d.dtype != np.bool_ or t2d.shape != (vocab,):
        yield _error("mapping", f"t2d is {t2d.dtype}{list(t2d.shape)}, bool[{vocab}] is needed", _EXPORT)
    else:
        yield from (_error(found.code, found.message, found.fix) for found in check_pair(d2t, t2d))
    if expected.mapping is not None and not np.array_equal(d2t, expected.mapping.d2t):
        message = (
            "its d2t is not that of the mapping that it was to be trained with: its head and its words do not match"
        )
        yield _error("mapping-differs", message, "serve it with its own mapping, or train it again with this one")


def _check_tensors(config: dict[str, Any], architecture: str, tensors: "dict[str, _Array]") -> Iterator[Finding]:
    shapes = _layer_shapes(config, _grouped(config) if architecture == LLAMA else _latent(config))
    for name, shape in shapes.items():
        array = tensors.get(name)
        if array is None:
            yield _error("tensor-missing", f"{name} is missing: the engine would leave it at random values", _EXPORT)
        elif array.shape != shape:
            message = f"{name} is {list(array.shape)}, its config.json asks for {list(shape)}"
            yield _error("tensor-shape", message, "its weights and its config.json do not belong together")
    unknown = sorted(tensors.keys() - shapes.keys() - set(_UNUSED))
    if unknown:
        names = ", ".join(unknown[:4]) + (f" and {len(unknown) - 4} more" if len(unknown) > 4 else "")
        yield _warning("tensor-unknown", f"the engine will skip {names} without a word", "look at their names")
    for name, array in tensors.items():
        if name in shapes and not _is_finite(array):
            yield _error("not-finite", f"{name} holds NaN or infinite values", "go back to a sound checkpoint")


def _common_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden = config["hidden_size"]
    eagle = config.get("eagle_config") or {}
    layers = len(eagle.get("eagle_aux_hidden_state_layer_ids") or ()) or _DEFAULT_AUX_LAYERS
    width = config.get("target_hidden_size", hidden) * config.get("num_aux_hidden_states", layers)
    head = config.get("draft_vocab_size")
    return {
        "fc.weight": (hidden, width),
        "norm.weight": (hidden,),
        **({} if head is None or config.get("tie_word_embeddings") else {"lm_head.weight": (head, hidden)}),
    }


def _grouped(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The attention that `LlamaForCausalLMEagle3` loads."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    queries, keys = heads * head_dim, config.get("num_key_value_heads", heads) * head_dim
    return {
        "q_proj": (queries, 2 * hidden),
        "k_proj": (keys, 2 * hidden),
        "v_proj": (keys, 2 * hidden),
        "o_proj": (hidden, queries),
    }


def _latent(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The attention that `Eagle3DeepseekV2ForCausalLM` loads."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    queries, compressed = config["q_lora_rank"], config["kv_lora_rank"]
    still, turning, values = (config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    return {
        "q_a_proj": (queries, 2 * hidden),
        "q_a_layernorm": (queries,),
        "q_b_proj": (heads * (still + turning), queries),
        "kv_a_proj_with_mqa": (compressed + turning, 2 * hidden),
        "kv_a_layernorm": (compressed,),
        "kv_b_proj": (heads * (still + values), compressed),
        "o_proj": (hidden, heads * values),
    }


def _layer_shapes(config: dict[str, Any], attention: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """All tensors that the engine loads, with those of `attention`."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    layer = {
        **{f"self_attn.{name}": shape for name, shape in attention.items()},
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "hidden_norm": (hidden,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes = _common_shapes(config) | {f"layers.0.{name}.weight": shape for name, shape in layer.items()}
    if config.get("fc_norm") or config.get("use_aux_norm"):
        width = config.get("target_hidden_size", hidden)
        count = shapes["fc.weight"][1] // width
        shapes |= {f"fc_norm.{number}.weight": (width,) for number in range(count)}
    if (config.get("eagle_config") or {}).get("norm_before_fc", config.get("norm_before_fc")):
        shapes["input_norm.weight"] = (shapes["fc.weight"][1],)
    return shapes


def _is_finite(array: "_Array") -> bool:
    """bfloat16 lies in numpy as uint16: NaN and infinity have every bit of the exponent."""
    if array.dtype == np.uint16:
        return not ((array & 0x7F80) == 0x7F80).any()
    return bool(np.isfinite(array).all()) if array.dtype.kind == "f" else True
