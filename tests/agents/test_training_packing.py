"""Windows one after another in a row are learned and measured as if each had a row of its own."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from remote.agents.training import step_attention
from remote.agents.training.latent import Latent
from remote.agents.training.loading import BatchReader, store_windows
from remote.agents.training.measure import measure_acceptance
from remote.agents.training.model import Drafter
from remote.agents.training.not_finite import samples_not_finite
from remote.agents.training.objective import Batch, LossOptions, Teacher, Unrolled, denominators, unroll
from remote.agents.training.packing import Packing
from remote.agents.training.rope import Rope
from remote.agents.training.shape import DrafterShape
from remote.artifacts.hidden_states import StoreReader

from .test_training_worker import Inputs

VOCABULARY, DRAFT, HIDDEN, STEPS = 14, 7, 16, 4
SHAPE = DrafterShape(
    hidden_size=HIDDEN,
    intermediate_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    vocab_size=VOCABULARY,
    draft_vocab_size=DRAFT,
    aux_layers=2,
    rms_norm_eps=1e-5,
    rope=Rope(),
    max_position_embeddings=128,
    normalise_aux=True,
)
SHAPES = {
    "llama": SHAPE,
    "mla": replace(
        SHAPE,
        latent=Latent(q_lora_rank=8, kv_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=5),
    ),
}
DRAFT_IDS = torch.arange(0, VOCABULARY, 2)


def teacher(source: torch.Generator) -> Teacher:
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[DRAFT_IDS] = True
    return Teacher(torch.randn(VOCABULARY, HIDDEN, generator=source), t2d)


def drafter(shape: DrafterShape) -> Drafter:
    torch.manual_seed(1)
    made = Drafter(shape)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.4)
    made.embedding = torch.randn(VOCABULARY, HIDDEN)
    return made


def windows(lengths: list[int], source: torch.Generator) -> list[tuple[Tensor, ...]]:
    return [
        (
            torch.randint(VOCABULARY, (size,), generator=source),
            torch.rand(size, generator=source) < 0.7,
            torch.randn(size, 2 * HIDDEN, generator=source),
            torch.randn(size, HIDDEN, generator=source),
        )
        for size in lengths
    ]


def packed(parts: list[tuple[Tensor, ...]]) -> Batch:
    joined = [torch.cat(column)[None] for column in zip(*parts, strict=True)]
    return Batch(*joined, packing=Packing.of([len(part[0]) for part in parts], torch.device("cpu")))


def side_by_side(parts: list[tuple[Tensor, ...]]) -> Batch:
    return Batch(
        *(torch.nn.utils.rnn.pad_sequence(list(column), batch_first=True) for column in zip(*parts, strict=True))
    )


def learned(batch: Batch, made: Drafter, judge: Teacher) -> tuple[Unrolled, list[Tensor]]:
    options = LossOptions()
    targets = judge.targets(batch, options)
    counted = [len(targets.counted(step, options)) for step in range(STEPS)]
    unrolled = unroll(
        made,
        batch,
        targets,
        judge.probabilities(batch, targets),
        DRAFT_IDS,
        denominators=denominators(counted, batch.input_ids.numel(), options),
        decay=0.8,
        options=options,
    )
    return unrolled, list(torch.autograd.grad(unrolled.total, list(made.parameters())))


lengths = st.lists(st.integers(2, 20), min_size=1, max_size=7)


@pytest.mark.parametrize("kind", SHAPES)
@settings(max_examples=25)
@given(lengths=lengths, block=st.integers(1, 40), seed=st.integers(0, 1 << 30))
def test_losses_and_gradients_are_those_of_windows_side_by_side(kind, lengths, block, seed):
    source = torch.Generator().manual_seed(seed)
    judge, made, parts = teacher(source), drafter(SHAPES[kind]), windows(lengths, source)
    alone, expected = learned(side_by_side(parts), made, judge)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_attention, "_BLOCK", block)
        together, found = learned(packed(parts), made, judge)
    torch.testing.assert_close(together.total, alone.total, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(together.steps, alone.steps, strict=True):
        torch.testing.assert_close(mine.loss, theirs.loss, rtol=1e-5, atol=1e-6)
        assert (int(mine.right), mine.counted, mine.masked) == (int(theirs.right), theirs.counted, theirs.masked)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


@settings(max_examples=25)
@given(lengths=lengths, seed=st.integers(0, 1 << 30))
def test_what_is_measured_is_the_same(lengths, seed):
    source = torch.Generator().manual_seed(seed)
    made, parts = drafter(SHAPE), windows(lengths, source)
    measured = [measure_acceptance(made, [batch], DRAFT_IDS, steps=3) for batch in (packed(parts), side_by_side(parts))]
    assert measured[0] == measured[1]


def test_no_token_of_another_window_is_seen():
    source = torch.Generator().manual_seed(2)
    made, judge, parts = drafter(SHAPE), teacher(source), windows([9, 12, 7], source)
    ids, mask, *_ = parts[1]
    loud = [parts[0], (ids, mask, *(torch.full_like(part, 1e3) for part in parts[1][2:])), parts[2]]
    silent = [
        (part[0], torch.zeros_like(part[1]), *part[2:]) if number == 1 else part for number, part in enumerate(loud)
    ]
    without = [parts[0], parts[2]]
    found, expected = (learned(packed(group), made, judge)[0].total for group in (silent, without))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_a_store_is_read_into_a_row_without_padding_and_what_is_not_finite_is_named(tmp_path):
    inputs = Inputs(tmp_path, broken=1)
    store = StoreReader(inputs.directory / "store")
    chosen = store_windows(store, [0, 1, 2], 8)
    batch = BatchReader(store, torch.device("cpu")).read(chosen)
    assert batch.input_ids.shape == (1, sum(window.length for window in chosen))
    for window, place in zip(chosen, batch.places([window.length for window in chosen]), strict=True):
        sample, part = store.sample(window.sample), slice(window.start, window.stop)
        assert batch.input_ids[place].tolist() == list(sample.input_ids[part])
        assert batch.loss_mask[place].tolist() == list(sample.loss_mask[part])
    assert set(samples_not_finite([(chosen, batch)])) == {1}
