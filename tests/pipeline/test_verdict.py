"""The verdict: surely faster, surely not, or not sure; never faster with other words."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.errors import UsageError
from remote.pipeline.evidence import Evidence
from remote.pipeline.verdict import SHOWN_DIVERGENCES, judge
from remote.protocol.reports import ArmLevel, Divergence, EvaluationReport, PromptResult, VerdictReport
from remote.protocol.run import VerdictConfig


def answer(number: int, seconds: float, *, tokens: int = 65, calls: int | None = None) -> PromptResult:
    return PromptResult(
        prompt_id=f"p{number}",
        category=("writing", "math")[number % 2],
        input_tokens=20,
        output_ids=list(range(tokens)),
        output_text="",
        time_to_first_token_s=0.5,
        end_to_end_s=0.5 + seconds,
        decode_tokens_per_s=(tokens - 1) / seconds,
        verify_calls=calls,
        acceptance_length=None,
        accepted_drafts=[],
    )


def level(
    seconds: list[float],
    *,
    concurrency: int = 1,
    acceptance: float | None = None,
    others: float | None = None,
) -> ArmLevel:
    calls = None if acceptance is None else round(64 / acceptance)
    prompts = [answer(number, value, calls=calls) for number, value in enumerate(seconds)]
    return ArmLevel(
        concurrency=concurrency,
        prompts=prompts,
        seconds=sum(seconds) / concurrency,
        decode_tokens_per_s=64 * len(seconds) / sum(seconds),
        end_to_end_tokens_per_s=1.0,
        output_tokens_per_s=65 * len(seconds) * concurrency / sum(seconds),
        acceptance_length=acceptance,
        others_cores=others,
    )


def report(arm: str, *levels: ArmLevel) -> EvaluationReport:
    return EvaluationReport(
        arm=arm,
        model="m",
        drafter=None,
        engine="sglang",
        engine_version="0.5.23",
        dtype="float32",
        attention_backend="intel_amx",
        host_name="host",
        devices=[],
        measured_at=0.0,
        levels=list(levels),
        compared_outputs=sum(len(one.prompts) for one in levels),
        divergences=[],
        fingerprint="f",
        cores=2,
    )


def parting(concurrency: int, number: int, *, near_tie: bool) -> Divergence:
    return Divergence(
        concurrency=concurrency,
        prompt_id=f"p{number}",
        position=3,
        token_baseline=1,
        token_drafter=2,
        top_two_logit_gap=0.1,
        near_tie=near_tie,
    )


def diverging(base: EvaluationReport, *divergences: Divergence) -> EvaluationReport:
    return msgspec.structs.replace(base, divergences=list(divergences))


STEADY = [4.0 + 0.1 * (number % 5) for number in range(20)]
WOBBLY = [4.0 * (0.5 if number % 2 else 1.45) for number in range(20)]
CONFIG = VerdictConfig()
NOTHING_KNOWN = Evidence(proposals=2)


def scaled(factor: float) -> list[float]:
    return [value / factor for value in STEADY]


def verdict_at(
    *factors: float, acceptance: float = 1.9, evidence: Evidence = NOTHING_KNOWN, config: VerdictConfig = CONFIG
) -> VerdictReport:
    """The verdict on steady arms whose speed-up at 1, 4, 16, … requests at a time is as given."""
    levels = [4**power for power in range(len(factors))]
    base = report("baseline", *(level(STEADY, concurrency=one) for one in levels))
    fast = report(
        "drafter",
        *(
            level(scaled(factor), concurrency=one, acceptance=acceptance)
            for one, factor in zip(levels, factors, strict=True)
        ),
    )
    return judge(base, fast, config, evidence=evidence)


def test_surely_faster_is_promoted() -> None:
    verdict = verdict_at(1.4)
    assert verdict.decision == "promote"
    assert verdict.speedup == pytest.approx(1.4)
    assert verdict.identical_outputs == 20
    assert verdict.reasons[0] == (
        "with one request at a time the speed-up lies between 1.40x and 1.40x (95% interval over 20 prompts), all above 1x"
    )


def test_a_drafter_that_slows_serving_down_is_rejected_with_what_to_look_at_in_its_order() -> None:
    verdict = verdict_at(0.66, acceptance=1.15, evidence=Evidence(proposals=2, coverage=0.6, simulated_acceptance=1.9))
    assert verdict.decision == "reject"
    assert verdict.speedup == pytest.approx(0.66)
    assert "the speed-up is 0.66x" in verdict.reasons[0]
    assert [cause.cause for cause in verdict.causes] == [
        "coverage",
        "layer_ids",
        "context_length",
        "training_data",
        "serving",
    ]
    assert "60.0%" in verdict.causes[0].text
    assert verdict.causes[0].suspect
    assert "1.90 on test text, serving reached 1.15" in verdict.causes[4].text
    assert verdict.causes[4].suspect


def test_a_speedup_that_may_be_none_is_inconclusive() -> None:
    base, wobbly = report("baseline", level([4.0] * 20)), report("drafter", level(WOBBLY, acceptance=1.6))
    verdict = judge(base, wobbly, CONFIG, evidence=NOTHING_KNOWN)
    low, high = verdict.speedup_interval
    assert low < 1.0 < high
    assert verdict.decision == "inconclusive"
    assert any("quieter host" in advice for advice in verdict.advice)


@pytest.mark.parametrize("factor", [0.66, 2.15])
def test_load_beside_one_arm_alone_makes_a_speedup_inconclusive_and_says_what_to_do(factor: float) -> None:
    base = report("baseline", level(STEADY, others=1.31))
    fast = report("drafter", level(scaled(factor), acceptance=1.9, others=0.08))
    verdict = judge(base, fast, CONFIG, evidence=NOTHING_KNOWN)
    assert verdict.decision == "inconclusive"
    said = "other processes used 0.1 of 2 cores beside the drafter's arm, 1.3 beside the other"
    assert verdict.reasons == [f"with one request at a time {factor:.2f}x is not conclusive: {said}"]
    assert "start the run again" in verdict.advice[-1]
    assert not any("more prompts" in advice or "a verification" in advice for advice in verdict.advice)
    assert (verdict.levels[0].baseline_others_cores, verdict.levels[0].drafter_others_cores) == (1.31, 0.08)


@pytest.mark.parametrize(("beside_base", "beside_drafter"), [(0.1, 0.3), (1.4, 1.3), (None, 1.9), (None, None)])
def test_load_that_was_the_same_or_is_not_known_decides_nothing(
    beside_base: float | None, beside_drafter: float | None
) -> None:
    base = report("baseline", level(STEADY, others=beside_base))
    fast = report("drafter", level(scaled(1.4), acceptance=1.9, others=beside_drafter))
    assert judge(base, fast, CONFIG, evidence=NOTHING_KNOWN).decision == "promote"


def test_load_beside_a_level_that_does_not_count_is_shown_and_decides_nothing() -> None:
    base = report("baseline", level(STEADY, others=0.1), level(STEADY, concurrency=4, others=1.5))
    fast = report(
        "drafter",
        level(scaled(1.4), acceptance=1.9, others=0.1),
        level(scaled(1.4), concurrency=4, acceptance=1.9, others=0.1),
    )
    verdict = judge(base, fast, VerdictConfig(concurrency=[1]), evidence=NOTHING_KNOWN)
    assert verdict.decision == "promote"
    assert [one.disturbed for one in verdict.levels] == [False, True]
    assert verdict.advice == []


def test_a_drafter_must_help_at_every_level() -> None:
    verdict = verdict_at(1.4, 1.2, 0.9)
    assert verdict.decision == "reject"
    assert [one.decision for one in verdict.levels] == ["promote", "promote", "reject"]
    assert verdict.reasons[0].startswith("with 16 requests at a time the speed-up is 0.90x")
    assert any("it helps at 1, 4 and not at 16" in advice for advice in verdict.advice)
    assert verdict.speedup == verdict.levels[0].speedup
    assert verdict_at(1.4, 1.2, 1.1).decision == "promote"


def test_a_level_that_does_not_count_is_shown_and_decides_nothing() -> None:
    verdict = verdict_at(1.4, 0.9, config=VerdictConfig(concurrency=[1]))
    assert verdict.decision == "promote"
    assert [(one.counts, one.decision) for one in verdict.levels] == [(True, "promote"), (False, "reject")]
    assert any("it helps at 1 and not at 4" in advice for advice in verdict.advice)


def test_a_doubtful_level_makes_the_whole_inconclusive() -> None:
    base = report("baseline", level(STEADY), level([4.0] * 20, concurrency=4))
    fast = report("drafter", level(scaled(1.5), acceptance=1.9), level(WOBBLY, concurrency=4, acceptance=1.9))
    verdict = judge(base, fast, CONFIG, evidence=NOTHING_KNOWN)
    assert [one.decision for one in verdict.levels] == ["promote", "inconclusive"]
    assert verdict.decision == "inconclusive"
    assert len(verdict.reasons) == 1


def test_a_drafter_that_is_accepted_and_costs_too_much_is_told_so() -> None:
    verdict = verdict_at(0.9, acceptance=1.8)
    assert verdict.levels[0].step_cost == pytest.approx(2.0)
    assert any("as long as 2.00 plain steps" in advice for advice in verdict.advice)


@pytest.mark.parametrize(("near_tie", "decision"), [(False, "reject"), (True, "promote")])
def test_other_outputs_are_rejected_however_fast_unless_it_is_a_tie(near_tie: bool, decision: str) -> None:
    base = diverging(report("baseline", level(STEADY)), parting(1, 0, near_tie=near_tie))
    verdict = judge(base, report("drafter", level(scaled(2.0), acceptance=2.5)), CONFIG, evidence=NOTHING_KNOWN)
    assert verdict.decision == decision
    assert (verdict.near_ties, verdict.real_divergences) == (int(near_tie), int(not near_tie))
    assert verdict.identical_outputs == 19
    assert verdict.divergences == base.divergences


def test_a_prompt_whose_outputs_part_at_two_levels_is_one_prompt() -> None:
    base = report("baseline", level(STEADY), level(STEADY, concurrency=4))
    base = diverging(base, parting(1, 0, near_tie=True), parting(4, 0, near_tie=False), parting(4, 1, near_tie=True))
    fast = report("drafter", level(scaled(2.0), acceptance=2.5), level(scaled(2.0), concurrency=4, acceptance=2.5))
    verdict = judge(base, fast, CONFIG, evidence=NOTHING_KNOWN)
    assert (verdict.identical_outputs, verdict.near_ties, verdict.real_divergences) == (18, 1, 1)
    assert [one.near_tie for one in verdict.divergences] == [False, True, True]


def test_the_verdict_shows_real_differences_first_and_not_thousands() -> None:
    many = [parting(1, number, near_tie=True) for number in range(200)]
    base = diverging(report("baseline", level(STEADY)), *many, parting(1, 200, near_tie=False))
    shown = judge(base, report("drafter", level(STEADY, acceptance=1.5)), CONFIG, evidence=NOTHING_KNOWN).divergences
    assert len(shown) == SHOWN_DIVERGENCES
    assert not shown[0].near_tie


def test_arms_without_a_common_prompt_or_level_cannot_be_judged() -> None:
    base = report("baseline", level(STEADY))
    unasked = msgspec.structs.replace(level(STEADY), prompts=[])
    with pytest.raises(UsageError, match="no prompt in common"):
        judge(base, report("drafter", unasked), CONFIG, evidence=NOTHING_KNOWN)
    with pytest.raises(UsageError, match="no level in common"):
        judge(base, report("drafter", level(STEADY, concurrency=2)), CONFIG, evidence=NOTHING_KNOWN)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.5, 20), min_size=2, max_size=30), st.floats(0.3, 3), st.randoms())
def test_the_interval_holds_the_measured_ratio_and_the_order_does_not_matter(seconds, factor, random) -> None:
    base = report("baseline", level(seconds))
    fast = report("drafter", level([value / factor for value in seconds], acceptance=1.5))
    verdict = judge(base, fast, CONFIG, evidence=NOTHING_KNOWN)
    low, high = verdict.speedup_interval
    assert low <= verdict.speedup <= high
    assert judge(base, fast, CONFIG, evidence=NOTHING_KNOWN) == verdict
    shuffled = list(base.levels[0].prompts)
    random.shuffle(shuffled)
    other = msgspec.structs.replace(base, levels=[msgspec.structs.replace(base.levels[0], prompts=shuffled)])
    assert judge(other, fast, CONFIG, evidence=NOTHING_KNOWN) == verdict
