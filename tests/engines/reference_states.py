"""What transformers computes for token ids, in float32; run by the engine's Python: `reference_states.py MODEL IDS.json OUT`."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


@torch.no_grad()
def write_reference(model: str, prompts: list[list[int]], out: str) -> None:
    """`hidden.<i>` [L + 1, T, H] (the last one post-norm) and `logits.<i>` [T, vocabulary] of each prompt."""
    target = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tensors = {}
    for index, prompt in enumerate(prompts):
        output = target(torch.tensor([prompt]), output_hidden_states=True)
        tensors[f"hidden.{index}"] = torch.cat(output.hidden_states)
        tensors[f"logits.{index}"] = output.logits[0]
    save_file(tensors, out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_reference(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), sys.argv[3])
