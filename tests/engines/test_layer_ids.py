"""The numbering of layers: what SGLang makes of the given ids is what was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.engines.layer_ids import to_sglang, to_vllm

LAYERS = 61
ids = st.lists(st.integers(1, LAYERS - 1), min_size=1, max_size=5, unique=True).map(sorted)


def captured(layer_ids: list[int], architecture: str) -> list[int]:
    """What SGLang 0.5.23 captures when it is given `layer_ids`, as its model files say."""
    if "Deepseek" in architecture or "Kimi" in architecture:
        return [layer_id + 1 for layer_id in layer_ids] if layer_ids[0] == 1 else list(layer_ids)
    return [layer_id + 1 for layer_id in layer_ids]


@given(ids)
def test_a_shifting_architecture_captures_the_layers_that_were_meant(wanted: list[int]):
    given_ids = to_sglang(wanted, architecture="LlamaForCausalLM", num_hidden_layers=LAYERS)
    assert captured(given_ids, "LlamaForCausalLM") == wanted


@pytest.mark.parametrize("architecture", ["DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration"])
@given(wanted=ids)
def test_deepseek_captures_the_layers_that_were_meant_or_refuses(architecture: str, wanted: list[int]):
    if wanted[0] == 1:
        with pytest.raises(ValueError, match="cannot capture layer 1"):
            to_sglang(wanted, architecture=architecture, num_hidden_layers=LAYERS)
        return
    assert captured(to_sglang(wanted, architecture=architecture, num_hidden_layers=LAYERS), architecture) == wanted


@pytest.mark.parametrize("wanted", [[0, 5], [5, LAYERS], [5, 3], [3, 3]])
def test_ids_that_the_model_does_not_have_are_refused(wanted: list[int]):
    with pytest.raises(ValueError, match="layer ids must"):
        to_sglang(wanted, architecture="LlamaForCausalLM", num_hidden_layers=LAYERS)
    with pytest.raises(ValueError, match="layer ids must"):
        to_vllm(wanted, num_hidden_layers=LAYERS)


@given(ids)
def test_vllm_counts_as_hugging_face_does_and_gives_the_last_state_before_its_norm(wanted: list[int]):
    assert to_vllm(wanted, num_hidden_layers=LAYERS) == [*wanted, LAYERS]
