"""What the trainers themselves write as a mapping, and what their loaders make of one; run under the engine's Python.

python peer_mappings.py write PEER DIRECTORY COUNTS.npy DRAFT_VOCAB_SIZE MODEL
python peer_mappings.py read PEER DIRECTORY OUTPUT.safetensors DRAFT_VOCAB_SIZE TARGET_VOCAB_SIZE

EAGLE is a repository and no package: its part is the lines of `eagle/traineagle3/cnets.py` (`Model.scandata`) that write and read.
"""

import os
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np
import torch
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]


def _layer(draft: int, target: int) -> Any:
    from transformers import LlamaConfig  # noqa: PLC0415 - slow, and what is read alone does not need it

    config = LlamaConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        vocab_size=target,
        pad_token_id=0,
    )
    config.draft_vocab_size = draft
    return config


def _occurring(counts: np.ndarray) -> dict[int, int]:
    return {token: int(count) for token, count in enumerate(counts) if count}


def _write_specforge(directory: Path, counts: np.ndarray, draft: int, model: Path) -> None:
    from specforge.data.preprocessing import generate_vocab_mapping_file  # noqa: PLC0415 - one peer at a time

    ids = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    rows = {"input_ids": [torch.cat([ids, ids[:9]])], "loss_mask": [torch.arange(len(ids) + 9) < len(ids)]}
    generate_vocab_mapping_file(rows, len(counts), draft, cache_dir=str(directory))


def _read_specforge(directory: Path, draft: int, target: int) -> Tensors:
    from specforge.core.compact_teacher import validate_vocab_mapping_consistency  # noqa: PLC0415
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3  # noqa: PLC0415

    drafter = LlamaForCausalLMEagle3(_layer(draft, target), attention_backend="sdpa")
    drafter.load_vocab_mapping(str(directory / "vocab_mapping.pt"))
    validate_vocab_mapping_consistency(drafter.t2d, drafter.d2t)
    return {"d2t": drafter.d2t, "t2d": drafter.t2d}


def _arguments(directory: Path, draft: int, model: str | None) -> Namespace:
    return Namespace(
        d2t_path=None,
        t2d_path=None,
        data_path=str(directory),
        draft_vocab_size=draft,
        token_freq_path=None,
        verifier_name_or_path=model,
        trust_remote_code=False,
    )


def _write_speculators(directory: Path, counts: np.ndarray, draft: int, model: Path) -> None:
    from speculators.train.cli import parse_vocab_mappings  # noqa: PLC0415

    torch.save(_occurring(counts), directory / "token_freq.pt")
    parse_vocab_mappings(_arguments(directory, draft, str(model)))
    (directory / "token_freq.pt").unlink()


def _read_speculators(directory: Path, draft: int, target: int) -> Tensors:
    from speculators import SpeculatorsConfig, VerifierConfig  # noqa: PLC0415
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: PLC0415
    from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: PLC0415
    from speculators.train.cli import parse_vocab_mappings  # noqa: PLC0415

    d2t, t2d, size = parse_vocab_mappings(_arguments(directory, draft, None))
    assert size == draft
    proposal = GreedyTokenProposalConfig(speculative_tokens=3)
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=_layer(draft, target),
        draft_vocab_size=draft,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[proposal],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
        ),
    )
    drafter = Eagle3DraftModel(config)
    drafter.load_vocab_mappings(t2d, d2t)
    return {"d2t": drafter.d2t, "t2d": drafter.t2d}


def _write_modelopt(directory: Path, counts: np.ndarray, draft: int, model: Path) -> None:
    from modelopt.torch.speculative.utils import calibrate_frequent_vocab  # noqa: PLC0415

    class Repeating:
        """A tokenizer whose conversation holds every token as often as it was counted, the last ones first."""

        def apply_chat_template(self, *_: object, **__: object) -> list[int]:
            return np.repeat(np.arange(len(counts)), counts)[::-1].tolist()

    calibrate_frequent_vocab(Repeating(), [], draft, str(directory / "d2t.pt"))


def _read_modelopt(directory: Path, draft: int, target: int) -> Tensors:
    from modelopt.torch.speculative.plugins.hf_eagle import HFEagleModel  # noqa: PLC0415
    from modelopt.torch.speculative.plugins.modeling_eagle import EagleModule  # noqa: PLC0415
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer  # noqa: PLC0415

    config = _layer(draft, target)
    config.use_last_layernorm = config.has_lm_head = True
    config.use_aux_hidden_state = False
    config._attn_implementation = "eager"
    model = SimpleNamespace(eagle_config=config, eagle_module=EagleModule(config, LlamaDecoderLayer))
    HFEagleModel.load_draft_vocab_cache(model, str(directory / "d2t.pt"))
    return {"d2t": model.eagle_module.d2t}


def _write_eagle(directory: Path, counts: np.ndarray, draft: int, model: Path) -> None:
    used_tokens = sorted(token for token, _ in Counter(_occurring(counts)).most_common(draft))
    d2t = torch.tensor([used_tokens[i] - i for i in range(len(used_tokens))])
    t2d = torch.tensor([i in used_tokens for i in range(len(counts))])
    torch.save({"d2t": d2t, "t2d": t2d}, directory / "cache.pt")


def _read_eagle(directory: Path, draft: int, target: int) -> Tensors:
    cache = torch.load(directory / "cache.pt")
    module = torch.nn.Module()
    module.register_buffer("d2t", cache["d2t"])
    module.register_buffer("t2d", cache["t2d"])
    return dict(module.named_buffers())


WRITERS = {
    "specforge": _write_specforge,
    "speculators": _write_speculators,
    "modelopt": _write_modelopt,
    "eagle": _write_eagle,
}
READERS = {
    "specforge": _read_specforge,
    "speculators": _read_speculators,
    "modelopt": _read_modelopt,
    "eagle": _read_eagle,
}


if __name__ == "__main__":
    verb, peer, directory, file, draft, last = sys.argv[1:]
    if verb == "write":
        WRITERS[peer](Path(directory), np.load(file), int(draft), Path(last))
    else:
        save_file(READERS[peer](Path(directory), int(draft), int(last)), file)
