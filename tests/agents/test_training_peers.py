"""Losses and gradients beside those that SpecForge 0.2.0 and speculators 0.9.0 themselves compute of the same weights and states."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from remote.agents.training.export import ExportedMapping
from remote.agents.training.model import Drafter
from remote.agents.training.numerics import rms_norm
from remote.agents.training.objective import (
    SPECFORGE,
    SPECULATORS,
    Batch,
    LossOptions,
    Targets,
    Teacher,
    Unrolled,
    denominators,
    unroll,
)
from remote.agents.training.rope import read_rope
from remote.agents.training.shape import DrafterShape
from remote.agents.training.speculators_layout import write_speculators
from remote.agents.training.target import read_target_config
from tests.conftest import Peers

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("peer_losses.py")
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
CASES: dict[str, dict[str, Any]] = {
    "heads for all": {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16},
    "shared keys": {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 500000.0},
    "one step": {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "ttt_steps": 1},
    "seven steps": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "ttt_steps": 7, "decay": 0.9},
    "over a block": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "tokens": 300},
    "linear rope": {"num_attention_heads": 4, "rope_scaling": {"rope_type": "linear", "factor": 3.0}},
    "llama3 rope": {"num_attention_heads": 4, "rope_scaling": LLAMA3, "rope_theta": 500000.0},
    "yarn rope": {"num_attention_heads": 4, "rope_scaling": YARN},
}
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "draft_vocab_size": 48,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "ttt_steps": 4,
    "decay": 0.8,
}


class Case:
    """A drafter with random weights, and rows of random states whose targets are mostly in the draft vocabulary."""

    def __init__(self, directory: Path, name: str, *, rows: int, normalise_aux: bool) -> None:
        told = {**SIZES, **CASES[name]}
        tokens = told.pop("tokens", 24)
        self.directory, self.steps, self.decay = directory, told["ttt_steps"], told["decay"]
        shape = DrafterShape(
            **{size: told[size] for size in SIZES if size not in {"rope_theta", "ttt_steps", "decay"}},
            num_attention_heads=told["num_attention_heads"],
            aux_layers=3,
            rope=read_rope(told),
            normalise_aux=normalise_aux,
        )
        generator = torch.Generator().manual_seed(len(name))
        self.drafter = Drafter(shape)
        for parameter in self.drafter.parameters():
            parameter.data.normal_(parameter.ndim == 1, 0.1, generator=generator)
        vocabulary, hidden = shape.vocab_size, shape.hidden_size
        self.t2d = torch.zeros(vocabulary, dtype=torch.bool)
        self.t2d[torch.randperm(vocabulary, generator=generator)[: shape.draft_vocab_size]] = True
        self.draft_ids = self.t2d.nonzero().squeeze(-1)
        self.drafter.embedding = torch.randn(vocabulary, hidden, generator=generator)
        head = torch.randn(vocabulary, hidden, generator=generator) * 0.2
        choices = self.draft_ids[torch.randint(len(self.draft_ids), (rows, tokens), generator=generator)]
        final = torch.randn(rows, tokens, hidden, generator=generator) + 6 * head[choices]
        mask = torch.rand(rows, tokens, generator=generator) > 0.3
        mask[-1, tokens // 2 :] = False
        self.batch = Batch(
            torch.randint(vocabulary, (rows, tokens), generator=generator),
            mask,
            torch.randn(rows, tokens, 3 * hidden, generator=generator),
            final,
        )
        self.teacher = Teacher(head, self.t2d)
        self.head, self.sizes = head, told
        (directory / "config.json").write_text(json.dumps(told))
        weights = {f"weights.{name}": value for name, value in self.drafter.state_dict().items()}
        tensors = {
            "ids": self.batch.input_ids,
            "mask": mask,
            "aux": self.batch.aux,
            "final": final,
            "head": head,
            "t2d": self.t2d,
            "d2t": self.draft_ids - torch.arange(len(self.draft_ids)),
            "weights.embed_tokens.weight": self.drafter.embedding,
        }
        save_file({**weights, **tensors}, directory / "tensors.safetensors")

    def unrolled(self, options: LossOptions) -> tuple[Targets, Unrolled]:
        """Our own forward and backward."""
        targets = self.teacher.targets(self.batch, options)
        counted = [len(targets.counted(step, options)) for step in range(self.steps)]
        unrolled = unroll(
            self.drafter,
            self.batch,
            targets,
            self.teacher.probabilities(self.batch, targets),
            self.draft_ids,
            denominators=denominators(counted, self.batch.input_ids.numel(), options),
            decay=self.decay,
            options=options,
        )
        unrolled.total.backward()
        return targets, unrolled

    def normalise_final(self) -> None:
        """Let our own teacher see what speculators makes of the final states, with a norm of ones."""
        ones = torch.ones(self.drafter.shape.hidden_size)
        self.batch = replace(self.batch, final=rms_norm(self.batch.final, ones, self.drafter.shape.rms_norm_eps))

    def read(self, peer: str) -> dict[str, torch.Tensor]:
        """What the peer made of it."""
        return load_file(self.directory / f"{peer}.safetensors")

    def check_gradients(self, theirs: dict[str, torch.Tensor]) -> None:
        """Every weight has the peer's gradient."""
        ours = {f"grads.{name}": parameter.grad for name, parameter in self.drafter.named_parameters()}
        assert ours.keys() == {name for name in theirs if name.startswith("grads.")}
        for name, gradient in ours.items():
            torch.testing.assert_close(
                gradient, theirs[name], rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
            )


def _cases(directory: Path, peer: str, peers: Peers, variants: dict[str, dict[str, Any]]) -> dict[str, Case]:
    """Every case in every variant, after the peer has computed them all in one process."""
    cases: dict[str, Case] = {}
    for name in CASES:
        for variant, settings in variants.items():
            place = directory / f"{name}{variant}".replace(" ", "-")
            place.mkdir()
            cases[f"{name}{variant}"] = Case(place, name, **settings)
    peers.run(SCRIPT, peer, *(case.directory for case in cases.values()))
    return cases


@pytest.fixture(scope="module")
def beside_specforge(tmp_path_factory: pytest.TempPathFactory, peers: Peers) -> dict[str, Case]:
    variants = {"": {"rows": 2, "normalise_aux": False}}
    return _cases(tmp_path_factory.mktemp("specforge"), "specforge", peers, variants)


@pytest.fixture(scope="module")
def beside_speculators(tmp_path_factory: pytest.TempPathFactory, peers: Peers) -> dict[str, Case]:
    variants = {", aux normalised" if norm else "": {"rows": 1, "normalise_aux": norm} for norm in (False, True)}
    return _cases(tmp_path_factory.mktemp("speculators"), "speculators", peers, variants)


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_specforges(beside_specforge: dict[str, Case], name: str) -> None:
    case = beside_specforge[name]
    _, unrolled = case.unrolled(SPECFORGE)
    theirs = case.read("specforge")
    losses = torch.stack([outcome.loss for outcome in unrolled.steps])
    torch.testing.assert_close(losses, theirs["losses"], rtol=0, atol=1e-6)
    case.check_gradients(theirs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variant", ["", ", aux normalised"])
def test_losses_and_gradients_are_those_of_speculators(
    beside_speculators: dict[str, Case], name: str, variant: str
) -> None:
    case = beside_speculators[name + variant]
    case.normalise_final()
    targets, unrolled = case.unrolled(SPECULATORS)
    theirs = case.read("speculators")
    likely = case.teacher.probabilities(case.batch, targets)
    for step, outcome in enumerate(unrolled.steps):
        # Its loss is the divergence, which is ours less the target's entropy, and its denominator is a hundred-thousandth above the count.
        at = likely[targets.index >= step]
        divergence = float(outcome.loss) + float((at * at.log()).sum()) / outcome.counted
        found = divergence * case.decay**step * outcome.counted / (outcome.counted + 1e-5)
        assert found == pytest.approx(float(theirs["losses"][step]), abs=1e-6)
    case.check_gradients(theirs)


def test_speculators_goes_on_from_our_export(beside_speculators: dict[str, Case], peers: Peers) -> None:
    """By its directory alone: head and final norm come from the target that it names."""
    cases = list(beside_speculators.values())
    for case in cases:
        _export(case)
    peers.run(SCRIPT, "exported", *(case.directory for case in cases))
    for case in cases:
        made, loaded = case.read("speculators")["losses"], case.read("exported")["losses"]
        torch.testing.assert_close(
            loaded, made, rtol=0, atol=2e-6, msg=lambda text, case=case: f"{case.directory}: {text}"
        )


def _export(case: Case) -> None:
    target, exported = case.directory / "target", case.directory / "exported"
    target.mkdir()
    exported.mkdir()
    config = {
        **case.sizes,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 8,
        "dtype": "float32",
    }
    (target / "config.json").write_text(json.dumps(config))
    weights = {
        "model.embed_tokens.weight": case.drafter.embedding,
        "lm_head.weight": case.head,
        "model.norm.weight": torch.ones(case.drafter.shape.hidden_size),
    }
    save_file(weights, target / "model.safetensors")
    write_speculators(
        exported,
        case.drafter,
        ExportedMapping(case.draft_ids - torch.arange(len(case.draft_ids)), case.t2d),
        target=read_target_config(target),
        layer_ids=[2, 4, 5],
        verifier=str(target),
        embedding=case.drafter.embedding,
    )
