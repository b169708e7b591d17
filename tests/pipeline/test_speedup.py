"""Acceptance by category and by position, worked out by hand; the bootstrap's promises."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.pipeline.speedup import acceptance_by_category, acceptance_by_position, judge_level, pair, speedup_interval
from remote.protocol.reports import ArmLevel, CategoryAcceptance
from tests.pipeline.test_verdict import answer, level


def with_prompts(*prompts: object) -> ArmLevel:
    return msgspec.structs.replace(level([1.0]), prompts=list(prompts))


def test_a_category_is_weighted_by_verifications_with_the_bonus_token() -> None:
    found = acceptance_by_category(
        with_prompts(
            answer(0, 1.0, tokens=31, calls=10),
            answer(2, 1.0, tokens=11, calls=10),
            answer(1, 1.0, tokens=41, calls=20),
        )
    )
    assert found == [
        CategoryAcceptance(category="math", prompts=1, verifications=20, acceptance_length=2.0),
        CategoryAcceptance(category="writing", prompts=2, verifications=20, acceptance_length=2.0),
    ]


def test_prompts_without_a_category_or_a_verification_make_none() -> None:
    nameless = msgspec.structs.replace(answer(0, 1.0, calls=3), category=None)
    assert acceptance_by_category(with_prompts(nameless, answer(1, 1.0, calls=0), answer(2, 1.0))) == []


def test_a_position_is_accepted_where_so_many_proposals_were() -> None:
    one = msgspec.structs.replace(answer(0, 1.0), accepted_drafts=[4, 3, 3])
    other = msgspec.structs.replace(answer(1, 1.0), accepted_drafts=[10])
    assert acceptance_by_position(with_prompts(one, other)) == pytest.approx([6 / 20, 3 / 20])
    assert acceptance_by_position(with_prompts(answer(0, 1.0))) == []


histograms = st.lists(st.lists(st.integers(0, 50), max_size=5), min_size=1, max_size=8)


@given(histograms)
def test_a_later_position_is_never_accepted_more_often(found: list[list[int]]) -> None:
    prompts = [msgspec.structs.replace(answer(0, 1.0), accepted_drafts=counts) for counts in found]
    shares = acceptance_by_position(with_prompts(*prompts))
    assert shares == sorted(shares, reverse=True)
    assert all(0 <= share <= 1 for share in shares)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(0.5, 20), st.floats(0.5, 20)), min_size=1, max_size=20), st.floats(0.2, 5))
def test_a_time_unit_changes_nothing(seconds: list[tuple[float, float]], unit: float) -> None:
    def interval(scale: float) -> tuple[float, float]:
        base, fast = (level([both[arm] * scale for both in seconds]) for arm in (0, 1))
        return speedup_interval(pair(base, fast), seed=0)

    assert interval(unit) == pytest.approx(interval(1.0))


def test_a_constant_ratio_is_sure() -> None:
    base, fast = level([2.0, 4.0, 9.0]), level([1.0, 2.0, 4.5], acceptance=2.0)
    judged = judge_level(base, fast, minimum_speedup=1.0, seed=0)
    assert judged.speedup_interval == pytest.approx((2.0, 2.0))
    assert judged.decision == "promote"
    assert judged.step_cost == pytest.approx(1.0)


def test_one_token_answers_do_not_divide_by_zero() -> None:
    prompts = [msgspec.structs.replace(answer(0, 1.0), output_ids=[7], end_to_end_s=0.5)]
    judged = judge_level(with_prompts(*prompts), with_prompts(*prompts), minimum_speedup=1.0, seed=0)
    assert judged.speedup == pytest.approx(1.0)
