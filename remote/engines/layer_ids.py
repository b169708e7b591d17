"""Layer ids: one canonical numbering (Hugging Face `hidden_states`), one converter for each engine.

Id k is the residual stream at the input of 0-based layer k, which is the output of layer k-1 and HF `hidden_states[k]`.
SGLang 0.5.23 adds 1 to given ids for most architectures; DeepSeek-V2/V3 and Kimi only when the first id is 1
(`srt/models/deepseek_v2.py`, `set_eagle3_layers_to_capture`). vLLM counts as Hugging Face does, and its id after the last layer
is the state before the final norm.
"""

_SHIFTED_ONLY_AFTER_ONE = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration")


def to_sglang(layer_ids: list[int], *, architecture: str, num_hidden_layers: int) -> list[int]:
    """The ids that make SGLang capture HF `hidden_states[layer_ids]` of `architecture`.

    Raises ValueError where SGLang cannot capture a layer: id 0 or the last state in shifted architectures, an ascending
    order that is broken, an id that the model does not have.
    """
    _check(layer_ids, num_hidden_layers)
    if architecture in _SHIFTED_ONLY_AFTER_ONE:
        if layer_ids[0] == 1:
            raise ValueError(f"SGLang cannot capture layer 1 of {architecture}: a first id of 1 shifts every id")
        return list(layer_ids)
    return [layer_id - 1 for layer_id in layer_ids]


def to_vllm(layer_ids: list[int], *, num_hidden_layers: int) -> list[int]:
    """The ids that make vLLM capture HF `hidden_states[layer_ids]`, and after them the state that the final norm is applied to.

    Raises ValueError for id 0, which its engine dies of with latent attention, and for ids that are out of order or too high.
    """
    _check(layer_ids, num_hidden_layers)
    return [*layer_ids, num_hidden_layers]


def _check(layer_ids: list[int], num_hidden_layers: int) -> None:
    if sorted(set(layer_ids)) != layer_ids:
        raise ValueError(f"layer ids must ascend without repeats, got {layer_ids}")
    if layer_ids[0] < 1 or layer_ids[-1] >= num_hidden_layers:
        raise ValueError(f"layer ids must lie in [1, {num_hidden_layers - 1}] for this model, got {layer_ids}")
