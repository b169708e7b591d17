"""The walk that says what a drafter would do in serving, against a plain simulation of greedy speculation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.training.measure import measure_acceptance, walk
from remote.agents.training.model import Drafter
from remote.agents.training.objective import Batch
from remote.agents.training.rope import Rope
from remote.agents.training.shape import DrafterShape

SHAPE = DrafterShape(
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    vocab_size=12,
    draft_vocab_size=6,
    aux_layers=2,
    rms_norm_eps=1e-5,
    rope=Rope(),
    max_position_embeddings=128,
    normalise_aux=True,
)


@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_walk_goes_over_every_token_in_steps_of_at_most_four(accepted):
    assert len(accepted) / 4 <= walk(accepted) <= len(accepted)


def test_a_walk_takes_each_step_from_where_the_last_one_ended():
    assert walk([0, 2, 9, 9, 1, 9, 0]) == 4
    assert walk([0, 0, 0]) == 3
    assert walk([3, 0, 0, 0]) == 1


def _speculate(drafter: Drafter, draft_ids: torch.Tensor, ids: torch.Tensor, aux: torch.Tensor, steps: int) -> tuple:
    """Decode the text `ids` from its second token on as an engine would, drafting from scratch at every place."""
    place, tokens, verifications = 0, 0, 0
    while place < len(ids) - 2:
        accepted = 0
        for step in range(steps):
            if place + 2 + step >= len(ids) or not _right(drafter, draft_ids, ids, aux, place, step):
                break
            accepted += 1
        place += accepted + 1
        tokens += accepted + 1
        verifications += 1
    return tokens, verifications


def _right(drafter, draft_ids, ids, aux, place, step) -> bool:
    from remote.agents.training.measure import correct_drafts  # noqa: PLC0415

    short = slice(0, place + 3 + step)
    batch = Batch(
        ids[None, short], torch.ones(1, place + 3 + step, dtype=torch.bool), aux[None, short], aux[None, short]
    )
    return bool(correct_drafts(drafter, batch, draft_ids, step + 1)[step, 0, place])


@pytest.mark.parametrize("seed", range(4))
def test_the_measured_length_is_that_of_a_plain_simulation(seed):
    torch.manual_seed(seed)
    drafter = Drafter(SHAPE)
    drafter.embedding = torch.randn(SHAPE.vocab_size, SHAPE.hidden_size)
    draft_ids = torch.tensor([1, 2, 3, 5, 7, 11])
    ids = draft_ids[torch.randint(0, 6, (40,))]
    aux = torch.randn(40, 2 * SHAPE.hidden_size)
    batch = Batch(ids[None], torch.ones(1, 40, dtype=torch.bool), aux[None], aux[None])
    with torch.no_grad():
        walked = [_speculate(drafter, draft_ids, ids, aux, proposals) for proposals in (1, 2, 3)]
    measured = measure_acceptance(drafter, [batch], draft_ids, steps=3)
    assert measured is not None
    assert {tokens for tokens, _ in walked} == {measured.tokens} == {38}
    assert measured.lengths == pytest.approx([tokens / verifications for tokens, verifications in walked])
    assert measured.length == measured.lengths[-1]


def test_nothing_held_out_measures_nothing():
    assert measure_acceptance(Drafter(SHAPE), [], torch.arange(6), steps=3) is None
