"""A host's root with the smallest inputs of a run, and an interpreter that claims to have the engine."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml_standin.nvml_standin import nvml_library, nvml_standin

__all__ = ["nvml_library", "nvml_standin"]

DOCUMENT = """
name = "trial"
[target]
model = "models/target"
[data]
train = "conversations/train.jsonl"
evaluation = "conversations/eval.jsonl"
max_length = 64
[engine]
device = "cpu"
[extraction]
layer_ids = [1, 2, 3]
[vocabulary]
draft_vocab_size = 32
[training]
steps = 4
device = "cpu"
[evaluation]
concurrency = [1, 2]
prompts = 2
max_tokens = 4
"""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "vocab_size": 512,
}


def write_conversations(path: Path, answers: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        for number, answer in enumerate(answers):
            turns = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"id": f"c-{number}", "conversations": turns}) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "root")


@pytest.fixture(scope="session")
def root_maker() -> Callable[[Path], Path]:
    """Makes a root where it is told to, for fixtures that outlive a test."""
    return make_root


SWITCHES = (
    "enable-metrics",
    "disable-overlap-schedule",
    "sleep-on-idle",
    "enable-return-hidden-states",
    "enable-return-aux-hidden-states",
    "disable-radix-cache",
    "disable-prefill-cuda-graph",
    "disable-decode-cuda-graph",
    # vLLM's
    "enforce-eager",
)
OPTIONS = (
    "model-path",
    "host",
    "port",
    "device",
    "dtype",
    "tp-size",
    "context-length",
    "max-running-requests",
    "mem-fraction-static",
    "prefill-attention-backend",
    "decode-attention-backend",
    "max-total-tokens",
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
    "return-aux-hidden-state-layer-ids",
    # vLLM's
    "model",
    "max-model-len",
    "max-num-seqs",
    "attention-backend",
    "speculative-config",
    "per-request-spec-decode-metrics",
    "disable-access-log-for-endpoints",
)


def make_root(root: Path) -> Path:
    model = root / "models/target"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"\0" * 1000)
    write_conversations(root / "conversations/train.jsonl", ["one two three", "four five", "six"])
    write_conversations(root / "conversations/eval.jsonl", ["seven", "eight"])
    python = root / "engine-python"
    options = "\n".join(f"  --{name}" for name in SWITCHES) + "\n" + "\n".join(f"  --{name} X" for name in OPTIONS)
    python.write_text(f"#!/bin/sh\ncase $* in\n*--help*) echo '{options}';;\n*) echo 0.0-fake;;\nesac\n")
    python.chmod(0o755)
    return root


@pytest.fixture
def python(root: Path) -> str:
    """An interpreter that can import any engine; below ROOT, so that a run names it the same way on every root."""
    return str(root / "engine-python")


@pytest.fixture(scope="session")
def document() -> str:
    return DOCUMENT
