"""Rates, acceptance and comparison, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.agents.evaluation.report import (
    acceptance_length,
    compare,
    decode_rate,
    end_to_end_rate,
    first_difference,
    oddity,
    summarise,
)
from remote.errors import WorkFailed
from remote.protocol.reports import PromptResult


def prompt(
    prompt_id: str, ids: list[int], *, first: float = 1.0, total: float = 3.0, calls: int | None = None
) -> PromptResult:
    return PromptResult(
        prompt_id=prompt_id,
        category=None,
        input_tokens=5,
        output_ids=ids,
        output_text="",
        time_to_first_token_s=first,
        end_to_end_s=total,
        decode_tokens_per_s=0.0,
        verify_calls=calls,
        acceptance_length=None,
        accepted_drafts=[],
    )


def test_rates_weigh_tokens_and_leave_the_prefill_out() -> None:
    prompts = [prompt("a", [1] * 11, total=3.0), prompt("b", [1] * 31, total=11.0)]
    assert decode_rate(prompts) == pytest.approx((10 + 30) / (2.0 + 10.0))
    assert end_to_end_rate(prompts) == pytest.approx(42 / 14)
    assert decode_rate([]) is None


def test_answers_of_one_token_have_no_rate_and_no_evaluation() -> None:
    single = [prompt("a", [1], first=1.0, total=1.5), prompt("b", [1], first=1.0, total=1.0)]
    assert decode_rate(single) is None
    with pytest.raises(WorkFailed, match="none of 2 answers, 4 at a time, has more than one token"):
        summarise(4, single, 2.0)
    assert summarise(1, [*single, prompt("c", [1] * 3)], 2.0).decode_tokens_per_s > 0


def test_acceptance_counts_the_bonus_token_but_not_the_prefills() -> None:
    assert acceptance_length([prompt("a", [1] * 13, calls=6), prompt("b", [1] * 9, calls=4)]) == pytest.approx(20 / 10)
    assert acceptance_length([prompt("a", [1, 2, 3])]) is None


def test_a_level_has_the_rate_of_a_request_and_that_of_the_server() -> None:
    level = summarise(2, [prompt("a", [1] * 11, total=3.0, calls=5), prompt("b", [1] * 31, total=11.0, calls=15)], 12.0)
    assert level.decode_tokens_per_s == pytest.approx(40 / 12.0)
    assert level.output_tokens_per_s == pytest.approx(42 / 12.0)
    assert level.acceptance_length == pytest.approx(40 / 20)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_first_difference_is_where_the_common_part_ends(left: list[int], right: list[int]) -> None:
    position = first_difference(left, right)
    assert position == first_difference(right, left)
    if position is None:
        assert left == right
    else:
        assert left[:position] == right[:position]
        assert left[position : position + 1] != right[position : position + 1]


def test_a_difference_is_judged_by_the_gap_at_its_place() -> None:
    asked: list[tuple[str, list[int]]] = []

    def gap_at(prompt_id: str, common: list[int]) -> float:
        asked.append((prompt_id, common))
        return {"tie": 1e-4, "real": 0.5, "ended": 0.5}[prompt_id]

    baseline = [
        prompt("same", [1, 2]),
        prompt("tie", [1, 2, 3]),
        prompt("real", [4, 5]),
        prompt("ended", [7]),
        prompt("x", [1]),
    ]
    drafter = [prompt("same", [1, 2]), prompt("tie", [1, 9, 3]), prompt("real", [8, 5]), prompt("ended", [7, 8])]
    arms = (summarise(4, arm, 9.0) for arm in (baseline, drafter))
    compared, found = compare(*arms, gap_at=gap_at, near_tie_logit_gap=1e-3)
    assert compared == 4
    assert [(d.prompt_id, d.position, d.near_tie) for d in found] == [
        ("tie", 1, True),
        ("real", 0, False),
        ("ended", 1, False),
    ]
    assert {d.concurrency for d in found} == {4}
    assert (found[2].token_baseline, found[2].token_drafter) == (-1, 8)
    assert asked == [("tie", [1]), ("real", []), ("ended", [7])]


def test_empty_and_repetitive_outputs_are_odd() -> None:
    assert oddity([]) == oddity([5]) == "empty"
    assert oddity([1, 2] * 20) == "repetitive"
    assert oddity(list(range(40))) is None
    assert oddity([1, 1, 1]) is None
