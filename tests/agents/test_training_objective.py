"""Our training-time test against two independent trainers, and the three choices on which they differ."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from remote.agents.training.model import Drafter
from remote.agents.training.numerics import shift_left
from remote.agents.training.objective import (
    SPECFORGE,
    SPECULATORS,
    Batch,
    LossOptions,
    Teacher,
    denominators,
    unroll,
)
from remote.agents.training.rope import Rope
from remote.agents.training.shape import DrafterShape

GOLDEN = Path(__file__).parents[1] / "golden" / "eagle3-golden"
CASES = ["mha_small", "gqa_ragged"]
SIZES = [
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "draft_vocab_size",
    "rms_norm_eps",
]


class Golden:
    """A golden case with a drafter that holds its weights."""

    def __init__(self, name: str) -> None:
        self.facts = json.loads((GOLDEN / f"{name}.json").read_text())
        self.tensors = load_file(GOLDEN / f"{name}.safetensors")
        sizes = {size: self.facts[size] for size in SIZES}
        self.drafter = Drafter(
            DrafterShape(**sizes, rope=Rope(self.facts["rope_theta"]), aux_layers=3, max_position_embeddings=512)
        )
        weights = {
            name.removeprefix("weights."): value for name, value in self.tensors.items() if name.startswith("weights.")
        }
        self.drafter.embedding = weights.pop("embed_tokens.weight")
        d2t, self.t2d = weights.pop("d2t"), weights.pop("t2d")
        self.draft_ids = d2t + torch.arange(len(d2t))
        self.drafter.load_state_dict(weights)
        self.teacher = Teacher(self.tensors["inputs.lm_head.weight"], self.t2d, chunk_tokens=7)
        self.steps = self.facts["ttt_steps"]
        self.decay = self.facts["ttt_decay"]

    def batch(self) -> Batch:
        inputs = self.tensors
        return Batch(
            inputs["inputs.input_ids"],
            inputs["inputs.loss_mask"].bool(),
            inputs["inputs.aux_hidden_states"],
            inputs["inputs.last_hidden_states"],
        )

    def row(self, number: int) -> Batch:
        rows = slice(number, number + 1)
        batch = self.batch()
        return Batch(batch.input_ids[rows], batch.loss_mask[rows], batch.aux[rows], batch.final[rows])

    def unrolled(self, batch: Batch, options: LossOptions):
        targets = self.teacher.targets(batch, options)
        counted = [len(targets.counted(step, options)) for step in range(self.steps)]
        return targets, unroll(
            self.drafter,
            batch,
            targets,
            self.teacher.probabilities(batch, targets),
            self.draft_ids,
            denominators=denominators(counted, batch.input_ids.numel(), options),
            decay=self.decay,
            options=options,
        )


@pytest.fixture(params=CASES)
def golden(request) -> Golden:
    return Golden(request.param)


def test_losses_and_gradients_equal_specforge(golden):
    _, unrolled = golden.unrolled(golden.batch(), SPECFORGE)
    losses = torch.stack([outcome.loss for outcome in unrolled.steps])
    expected = golden.facts["specforge"]
    torch.testing.assert_close(losses, torch.tensor(expected["step_losses"]), rtol=0, atol=1e-6)
    unrolled.total.backward()
    assert float(unrolled.total.detach()) == pytest.approx(expected["total_loss"], abs=2e-6)
    for name, parameter in golden.drafter.named_parameters():
        torch.testing.assert_close(
            parameter.grad,
            golden.tensors[f"grads.{name}"],
            rtol=0,
            atol=1e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_accuracies_equal_specforge(golden):
    _, unrolled = golden.unrolled(golden.batch(), SPECFORGE)
    counted = [int(outcome.right) / max(outcome.counted, 1) for outcome in unrolled.steps]
    assert counted == pytest.approx(golden.facts["specforge"]["step_accuracy"], abs=1e-6)


def test_losses_equal_speculators_less_the_targets_entropy(golden):
    for number, expected in enumerate(golden.facts["speculators_per_sample"]):
        batch = golden.row(number)
        final = batch.final * torch.rsqrt(batch.final.square().mean(-1, keepdim=True) + 1e-5)
        batch = Batch(batch.input_ids, batch.loss_mask, batch.aux, final)
        targets, unrolled = golden.unrolled(batch, SPECULATORS)
        for step, outcome in enumerate(unrolled.steps):
            likely = golden.teacher.probabilities(batch, targets)[targets.index >= step]
            entropy = -(likely * likely.log()).sum() / outcome.counted
            divergence = float(outcome.loss - entropy) * outcome.counted / (outcome.counted + 1e-5)
            assert divergence * golden.decay**step == pytest.approx(expected[f"loss_{step}_sum"], abs=2e-6)
            assert outcome.counted == expected[f"full_acc_{step}_total"]


def test_shifted_mask_counts_the_position_that_is_fed_the_first_masked_token(golden):
    batch = golden.batch()
    mask = torch.zeros_like(batch.loss_mask)
    mask[0, 5] = True
    batch = Batch(batch.input_ids, mask, batch.aux, batch.final)
    shifted = golden.teacher.targets(batch, LossOptions())
    still = golden.teacher.targets(batch, LossOptions(shift_mask=False))
    assert shifted.index.tolist() == [4]
    assert still.index.tolist() == [5]


def test_valid_denominator_does_not_see_padding_and_all_does(golden):
    batch = golden.batch()
    padded = Batch(
        *(
            torch.cat([part, torch.zeros_like(part)], dim=1)
            for part in (batch.input_ids, batch.loss_mask, batch.aux, batch.final)
        )
    )
    for denominator, equal in (("valid", True), ("all", False)):
        options = LossOptions(denominator=denominator)
        short = golden.unrolled(batch, options)[1].total
        long = golden.unrolled(padded, options)[1].total
        assert torch.allclose(short, long, atol=1e-5) is equal


def test_dropped_positions_are_those_that_the_drafter_cannot_say(golden):
    batch = golden.batch()
    targets = golden.teacher.targets(batch, LossOptions())
    unspeakable = int(targets.tokens[0])
    t2d = golden.t2d.clone()
    t2d[unspeakable] = False
    t2d[(~golden.t2d).nonzero()[0]] = True
    golden.teacher = Teacher(golden.tensors["inputs.lm_head.weight"], t2d)
    silent = int((targets.tokens == unspeakable).sum())
    dropped = golden.unrolled(batch, LossOptions(out_of_vocabulary="drop"))[1].steps[0]
    kept = golden.unrolled(batch, LossOptions(out_of_vocabulary="keep"))[1].steps[0]
    assert kept.counted == kept.masked == dropped.masked == len(targets.tokens)
    assert dropped.counted <= kept.counted - silent < kept.counted


def test_a_batch_that_says_nothing_has_a_gradient_of_zero_for_every_weight(golden):
    """So that ranks whose positions all fall away add their gradients up like the others."""
    batch = golden.batch()
    silent = Batch(batch.input_ids, torch.zeros_like(batch.loss_mask), batch.aux, batch.final)
    unrolled = golden.unrolled(silent, LossOptions())[1]
    unrolled.total.backward()
    assert float(unrolled.total.detach()) == 0
    assert all(not parameter.grad.any() for parameter in golden.drafter.parameters())


def test_the_choice_in_chunks_is_the_argmax_over_the_whole_vocabulary(golden):
    final = golden.tensors["inputs.last_hidden_states"].flatten(0, 1)
    whole = (final @ golden.tensors["inputs.lm_head.weight"].T).argmax(-1)
    assert torch.equal(golden.teacher.argmax(final), whole)


def test_known_choices_give_the_same_targets(golden):
    batch = golden.batch()
    rows, tokens = batch.input_ids.shape
    choices = golden.teacher.argmax(batch.final.flatten(0, 1)).view(rows, tokens)
    known = Batch(batch.input_ids, batch.loss_mask, batch.aux, batch.final, choices)
    fresh, cached = golden.teacher.targets(batch, LossOptions()), golden.teacher.targets(known, LossOptions())
    assert torch.equal(fresh.tokens, cached.tokens)


def test_a_step_by_step_decode_gives_what_training_saw(golden):
    """What an engine does after a prefix of n tokens: keys of the prefix from the target, then keys of its own drafts."""
    batch = golden.row(0)
    ids, prefix, steps = shift_left(batch.input_ids), 9, 3
    from remote.agents.training.attention import StepCache  # noqa: PLC0415
    from remote.agents.training.numerics import rotary_tables, rotate  # noqa: PLC0415

    with torch.no_grad():
        cache = StepCache()
        hidden = golden.drafter.fuse(batch.aux)
        trained = []
        for step in range(steps):
            hidden = golden.drafter.step(ids if step == 0 else shift_left(ids), hidden, cache)
            ids = ids if step == 0 else shift_left(ids)
            trained.append(hidden[0, prefix - 1])

        layer, shape = golden.drafter.midlayer, golden.drafter.shape
        served_ids = shift_left(batch.input_ids)[0]
        states = golden.drafter.fuse(batch.aux)[0, :prefix]
        tokens = served_ids[:prefix]
        both, residual = [], None
        for step in range(steps):
            embeddings = golden.drafter.embedding[tokens]
            both.append(torch.cat([layer.input_layernorm(embeddings), layer.hidden_norm(states)], -1))
            everything = torch.cat(both)
            positions = torch.arange(len(everything))
            tables = rotary_tables(positions, layer.self_attn.frequencies, 1.0)

            def heads(linear, inputs):
                return linear(inputs).unflatten(-1, (-1, shape.head_dim)).transpose(0, 1)[None]

            query = rotate(heads(layer.self_attn.q_proj, everything), *tables)
            keys = rotate(heads(layer.self_attn.k_proj, everything), *tables)
            values = heads(layer.self_attn.v_proj, everything)
            attended = torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, is_causal=True, enable_gqa=True
            )
            residual = states[-1] + layer.self_attn.o_proj(attended.transpose(1, 2).flatten(2)[0, -1])
            out = residual + layer.mlp(layer.post_attention_layernorm(residual))
            torch.testing.assert_close(out, trained[step], rtol=1e-5, atol=1e-5)
            states, tokens = out[None], served_ids[prefix + step : prefix + step + 1]
