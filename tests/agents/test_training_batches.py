"""Which tokens are trained on together, in which order, and the learning rate."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.training.batches import (
    Window,
    batches_from,
    cut_windows,
    held_out_samples,
    plan_epoch,
)
from remote.agents.training.schedule import learning_rate

lengths = st.lists(st.integers(2, 90), min_size=1, max_size=120)


def _windows(sizes: list[int]) -> list[Window]:
    return [Window(number, 0, size) for number, size in enumerate(sizes)]


@given(lengths, st.integers(90, 600), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_has_every_window_once_within_the_budget(sizes, budget, seed, epoch):
    batches = plan_epoch(_windows(sizes), batch_tokens=budget, seed=seed, epoch=epoch)
    assert sorted(itertools.chain(*batches), key=lambda window: window.sample) == _windows(sizes)
    assert all(sum(window.length for window in batch) <= budget for batch in batches)


@given(lengths, st.integers(0, 40))
def test_a_resumed_order_goes_on_where_the_first_one_was(sizes, first):
    def take(start, count):
        return list(itertools.islice(batches_from(_windows(sizes), batch_tokens=200, seed=3, first=start), count))

    assert take(first, 5) == take(0, first + 5)[first:]


def test_epochs_and_seeds_have_orders_of_their_own():
    windows = _windows([20] * 200)
    orders = [plan_epoch(windows, batch_tokens=100, seed=seed, epoch=epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(a != b for a, b in itertools.combinations(orders, 2))


def test_a_window_longer_than_a_batch_is_a_batch_alone():
    batches = plan_epoch(_windows([50, 300, 40]), batch_tokens=100, seed=0, epoch=0)
    assert [Window(1, 0, 300)] in batches


@given(st.lists(st.booleans(), max_size=60), st.integers(2, 20))
def test_windows_cover_everything_that_can_be_learnt(mask, length):
    windows = cut_windows(7, mask, length)
    covered = {place for window in windows for place in range(window.start + 1, window.stop)}
    assert all(window.length <= length and window.sample == 7 for window in windows)
    starts = set(range(0, len(mask), length))
    assert {place for place, masked in enumerate(mask) if masked} - starts <= covered


@pytest.mark.parametrize(("samples", "count"), [(0, 0), (19, 0), (20, 1), (384, 19), (100_000, 64)])
def test_a_small_share_of_the_store_is_held_out_evenly(samples, count):
    kept = held_out_samples(samples)
    assert len(kept.choosing) - len(kept.reporting) in (0, 1)
    held_out = sorted(kept.choosing + kept.reporting)
    assert len(set(held_out)) == len(held_out) == count
    edges = [0, *held_out, samples]
    assert all(0 <= number < samples for number in held_out)
    assert all(b - a <= samples / max(count, 1) + 1 for a, b in itertools.pairwise(edges))


def test_the_learning_rate_warms_up_and_falls_to_zero():
    rates = [learning_rate(step, total_steps=100, peak=1.0, warmup_fraction=0.1) for step in range(1, 101)]
    assert rates[9] == max(rates) == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] == pytest.approx(0.0, abs=1e-9)
