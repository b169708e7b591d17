"""Losses and gradients of one training forward of SpecForge or speculators, as one safetensors file; run under the engine's Python.

python peer_losses.py specforge|speculators|exported CASE..., where each directory CASE has config.json (a Llama drafter's sizes, `ttt_steps`, `decay`)
and tensors.safetensors: the inputs, and `weights.NAME` by the names of an exported drafter. Writes CASE/PEER.safetensors; `exported` are
the losses of speculators with the drafter in CASE/exported instead.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

Tensors = dict[str, torch.Tensor]


def of_specforge(sizes: dict[str, Any], config: LlamaConfig, data: Tensors, place: Path) -> Tensors:
    import specforge.algorithms.eagle3.model as eagle3  # noqa: PLC0415 - one peer at a time
    from specforge.core.loss import _compute_loss  # noqa: PLC0415
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3  # noqa: PLC0415
    from specforge.utils import padding  # noqa: PLC0415

    # Its Triton kernel needs a GPU; this is the reference that it ships beside it.
    eagle3.LogSoftmaxLoss = type("LogSoftmaxLoss", (), {"apply": staticmethod(_compute_loss)})
    drafter = LlamaForCausalLMEagle3(config, attention_backend="sdpa").float()
    load(drafter, data, midlayer="midlayer")
    drafter.freeze_embedding()
    model = eagle3.OnlineEagle3Model(drafter, length=sizes["ttt_steps"], attention_backend="sdpa")
    out = model(
        input_ids=padding(data["ids"], left=False),
        attention_mask=torch.ones_like(data["ids"]),
        loss_mask=data["mask"].long()[..., None],
        hidden_states=data["aux"],
        target=padding(data["final"], left=False) @ data["head"].T,
    )
    losses = torch.stack(out[0])
    (losses * sizes["decay"] ** torch.arange(len(losses))).sum().backward()
    return {"losses": losses.detach(), **gradients(drafter, midlayer="midlayer")}


def of_speculators(sizes: dict[str, Any], config: LlamaConfig, data: Tensors, place: Path) -> Tensors:
    drafter = speculators_drafter(sizes, config, data)
    loss, losses = speculators_losses(drafter, sizes, data)
    loss.backward()
    return {"losses": losses, **gradients(drafter, midlayer="layers.0")}


def of_exported(sizes: dict[str, Any], config: LlamaConfig, data: Tensors, place: Path) -> Tensors:
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: PLC0415 - as above

    loaded = Eagle3DraftModel.from_pretrained(place / "exported")
    loaded.load_verifier_weights()
    # What it loads with needs rows of 128; this is the same drafter with the attention that any length may have.
    told = Eagle3SpeculatorConfig.from_pretrained(place / "exported")
    told.transformer_layer_config._attn_implementation = "eager"
    drafter = Eagle3DraftModel(told)
    drafter.load_state_dict(loaded.state_dict())
    with torch.no_grad():
        return {"losses": speculators_losses(drafter, sizes, data)[1]}


def speculators_drafter(sizes: dict[str, Any], config: LlamaConfig, data: Tensors) -> Any:
    from speculators import SpeculatorsConfig, VerifierConfig  # noqa: PLC0415 - as above
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: PLC0415
    from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: PLC0415

    config._attn_implementation = "eager"
    drafter = Eagle3DraftModel(
        Eagle3SpeculatorConfig(
            transformer_layer_config=config,
            draft_vocab_size=config.draft_vocab_size,
            fc_norm="weights.fc_norm.0.weight" in data,
            speculators_config=SpeculatorsConfig(
                algorithm="eagle3",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=sizes["ttt_steps"])],
                default_proposal_method="greedy",
                verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
            ),
        )
    ).float()
    drafter.load_vocab_mappings(data["t2d"], data["d2t"])
    load(drafter, data, midlayer="layers.0")
    with torch.no_grad():
        drafter.verifier_lm_head.weight.copy_(data["head"][data["t2d"]])
        drafter.verifier_norm.weight.fill_(1.0)
    drafter.lm_head.weight.requires_grad_(True)
    return drafter


def speculators_losses(drafter: Any, sizes: dict[str, Any], data: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole loss, and the weighted one of each step."""
    from speculators.losses import resolve_loss_config  # noqa: PLC0415 - as above

    _, loss, metrics = drafter(
        data["aux"][:, :-1],
        data["ids"][:, 1:],
        torch.zeros_like(data["ids"][:, 1:]),
        loss_mask=data["mask"][:, 1:],
        verifier_last_hidden_states=data["final"][:, 1:],
        ttt_steps=sizes["ttt_steps"],
        ttt_step_loss_decay=sizes["decay"],
        loss_config=resolve_loss_config("kl_div", "eager"),
    )
    steps = range(sizes["ttt_steps"])
    return loss, torch.stack([metrics[f"loss_{step}_sum"].reshape(()).float() for step in steps])


def load(drafter: torch.nn.Module, data: Tensors, *, midlayer: str) -> None:
    """Give the peer's drafter the weights of the case; all that it trains must be among them."""
    weights = {
        name.removeprefix("weights.").replace("midlayer", midlayer): tensor
        for name, tensor in data.items()
        if name.startswith("weights.")
    }
    mapping = {name: data[name] for name in ("t2d", "d2t") if name in dict(drafter.named_buffers())}
    missing, unexpected = drafter.load_state_dict(weights | mapping, strict=False)
    assert not unexpected, unexpected
    trained = {name for name, parameter in drafter.named_parameters() if parameter.requires_grad}
    assert not trained & set(missing), missing


def gradients(drafter: torch.nn.Module, *, midlayer: str) -> Tensors:
    """The gradients by the names of an exported drafter."""
    return {
        f"grads.{name.replace(midlayer, 'midlayer')}": parameter.grad
        for name, parameter in drafter.named_parameters()
        if parameter.grad is not None
    }


if __name__ == "__main__":
    peer, *places = sys.argv[1:]
    compute = {"specforge": of_specforge, "speculators": of_speculators, "exported": of_exported}[peer]
    torch.set_num_threads(1)
    for place in map(Path, places):
        sizes = json.loads((place / "config.json").read_text())
        config = LlamaConfig(**sizes, num_hidden_layers=1, pad_token_id=0)
        config.draft_vocab_size = sizes["draft_vocab_size"]
        made = compute(sizes, config, load_file(place / "tensors.safetensors"), place)
        save_file({name: tensor.contiguous() for name, tensor in made.items()}, place / f"{peer}.safetensors")
