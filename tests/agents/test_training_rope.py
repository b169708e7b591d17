"""Positions of a drafter: trained as transformers, SGLang and vLLM turn them, for every kind of rope that a target may have."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from remote.agents.training.numerics import rotary_frequencies, rotary_tables
from remote.agents.training.rope import Linear, Rope, read_rope
from remote.errors import Precondition

REPOSITORY = Path(__file__).parents[2]
HEAD = 64
POSITIONS = [0, 1, 7, 100, 2047, 4095, 4096, 8191]
"""The last is the longest text of the dynamic target: the one that its base is fixed at."""
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 2048}
YARN = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024}
TARGETS = {
    "plain": {"rope_theta": 50000.0},
    "nothing": {},
    "renamed": {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
    "images": {"rope_scaling": {"type": "default", "mrope_section": [8, 12, 12]}, "rope_theta": 1e6},
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.5}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 4096},
    "llama3": {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 500000.0},
    "yarn": {"rope_scaling": YARN},
    "kimi": {
        "rope_theta": 50000.0,
        "rope_scaling": {
            **YARN,
            "beta_fast": 1.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
    "deepseek": {"rope_scaling": {**YARN, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 1.0}},
    "one_scale": {"rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0}},
    "its_own_magnitude": {"rope_scaling": {**YARN, "attention_factor": 1.3, "truncate": False}},
    "factor_left_out": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "factor": None,
            "original_max_position_embeddings": 2048,
        }
    },
}


def _text(name: str) -> dict:
    return {"max_position_embeddings": 8192, **TARGETS[name]}


def _ours(rope: Rope) -> torch.Tensor:
    cosines, sines = rotary_tables(torch.tensor(POSITIONS), rotary_frequencies(rope, HEAD), rope.magnitude)
    return torch.cat([cosines[:, : HEAD // 2], sines[:, : HEAD // 2]], dim=-1)


def _write(directory: Path) -> None:
    """The targets' configs, and those of their drafters as they are exported."""
    (directory / "positions.json").write_text(json.dumps(POSITIONS))
    shared = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": HEAD, "hidden_size": 2 * HEAD}
    sizes = {"num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 32, "intermediate_size": 16}
    for name in TARGETS:
        exported = {"max_position_embeddings": 8192, **read_rope(_text(name)).exported(HEAD)}
        for kind, own in (("targets", _text(name)), ("drafters", exported)):
            place = directory / kind / name
            place.mkdir(parents=True)
            (place / "config.json").write_text(json.dumps({**shared, **sizes, **own}))


def _read(engine: str, python: Path, directory: Path) -> dict[str, torch.Tensor]:
    _write(directory)
    paths = map(str, [REPOSITORY / "remote/engines/sglang_cpu", REPOSITORY])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
    }
    command = [python, Path(__file__).with_name("rope_readers.py"), engine, directory, directory / "tables.safetensors"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return load_file(directory / "tables.safetensors")


def _check(tables: dict[str, torch.Tensor]) -> None:
    for name in TARGETS:
        ours = _ours(read_rope(_text(name)))
        for reader in ("target", "transformers", "engine"):
            torch.testing.assert_close(tables[f"{name}.{reader}"], ours, rtol=0, atol=2e-3, msg=f"{name}: {reader}")
            # An ulp of a frequency is a thousandth of a turn by the last position; up to here it is nothing.
            torch.testing.assert_close(
                tables[f"{name}.{reader}"][:4], ours[:4], rtol=0, atol=2e-5, msg=f"{name}: {reader}"
            )


def test_what_is_exported_turns_in_sglang_and_transformers_as_it_was_trained(engine_python, tmp_path):
    _check(_read("sglang", engine_python, tmp_path))


@pytest.mark.slow
def test_what_is_exported_turns_in_vllm_as_it_was_trained(vllm_python, tmp_path):
    _check(_read("vllm", vllm_python, tmp_path))


def test_a_model_that_sees_images_or_attends_in_two_ways_has_the_positions_of_text_and_of_full_attention():
    assert read_rope({"rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}, "rope_theta": 1e6}) == Rope(1e6)
    by_layer = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    by_layer["full_attention"] = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    assert read_rope({"rope_parameters": by_layer}) == Rope(1e6, Linear(factor=8.0))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}, "'longrope'"),
        ({"type": "ntk", "factor": 2.0}, "'ntk'"),
        ({"rope_type": "linear"}, "linear rope .* `factor`"),
        ({"rope_type": "linear", "factor": 0.5}, "linear rope .* >= 1"),
        ({"rope_type": "llama3", **LLAMA3, "high_freq_factor": 1.0}, "high_freq_factor must be above"),
        (
            {"rope_type": "yarn", "factor": "8", "original_max_position_embeddings": 4096},
            r"yarn rope .* at `\$\.factor",
        ),
    ],
)
def test_what_no_drafter_could_be_served_with_is_refused_in_words(parameters, said):
    with pytest.raises(Precondition, match=said) as refused:
        read_rope({"rope_scaling": parameters, "rope_theta": 10000.0})
    assert refused.value.info.hint is not None


def test_the_drafter_of_a_dynamic_target_reaches_as_far_as_the_target_does():
    text = {"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    assert read_rope(text).reach == 2.0
    assert read_rope(_text("kimi")).reach == 1.0
