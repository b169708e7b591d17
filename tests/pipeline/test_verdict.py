"""The verdict: surely faster, surely not, or not sure; never faster with other words."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.errors import UsageError
from remote.pipeline.verdict import judge
from remote.protocol.reports import Divergence, EvaluationReport, PromptResult
from remote.protocol.run import VerdictConfig


def report(arm: str, seconds: list[float], *, tokens: int = 65, acceptance: float | None = None) -> EvaluationReport:
    prompts = [
        PromptResult(
            prompt_id=f"p{number}",
            output_ids=list(range(tokens)),
            output_text="",
            time_to_first_token_s=0.5,
            end_to_end_s=0.5 + value,
            decode_tokens_per_s=(tokens - 1) / value,
            verify_calls=None,
            acceptance_length=acceptance,
        )
        for number, value in enumerate(seconds)
    ]
    return EvaluationReport(
        arm=arm,
        model="m",
        drafter=None,
        engine="sglang",
        engine_version="0.5.23",
        dtype="float32",
        attention_backend="intel_amx",
        prompts=prompts,
        decode_tokens_per_s=(tokens - 1) * len(seconds) / sum(seconds),
        end_to_end_tokens_per_s=1.0,
        acceptance_length=acceptance,
        compared_prompts=len(seconds),
        divergences=[],
        fingerprint="f",
    )


def diverging(base: EvaluationReport, *, near_tie: bool) -> EvaluationReport:
    divergence = Divergence(
        prompt_id="p0", position=3, token_baseline=1, token_drafter=2, top_two_logit_gap=0.1, near_tie=near_tie
    )
    return msgspec.structs.replace(base, divergences=[divergence])


STEADY = [4.0 + 0.1 * (number % 5) for number in range(20)]
CONFIG = VerdictConfig()


def scaled(factor: float) -> list[float]:
    return [value / factor for value in STEADY]


def test_surely_faster_is_promoted() -> None:
    verdict = judge(report("baseline", STEADY), report("drafter", scaled(1.4), acceptance=1.9), CONFIG, coverage=0.9)
    assert verdict.decision == "promote"
    assert verdict.speedup == pytest.approx(1.4)
    assert verdict.identical_outputs == 20


def test_a_drafter_that_slows_serving_down_is_rejected_with_what_to_look_at() -> None:
    verdict = judge(report("baseline", STEADY), report("drafter", scaled(0.66), acceptance=1.15), CONFIG, coverage=0.6)
    assert verdict.decision == "reject"
    assert verdict.speedup == pytest.approx(0.66)
    assert any("60%" in advice for advice in verdict.advice)
    assert any("layer ids" in advice for advice in verdict.advice)


def test_a_speedup_that_may_be_none_is_inconclusive() -> None:
    wobbly = [4.0 * (0.5 if number % 2 else 1.45) for number in range(20)]
    verdict = judge(report("baseline", [4.0] * 20), report("drafter", wobbly, acceptance=1.6), CONFIG, coverage=None)
    low, high = verdict.speedup_interval
    assert low < 1.0 < high
    assert verdict.decision == "inconclusive"


@pytest.mark.parametrize(("near_tie", "decision"), [(False, "reject"), (True, "promote")])
def test_other_outputs_are_rejected_however_fast_unless_it_is_a_tie(near_tie: bool, decision: str) -> None:
    base = diverging(report("baseline", STEADY), near_tie=near_tie)
    verdict = judge(base, report("drafter", scaled(2.0), acceptance=2.5), CONFIG, coverage=None)
    assert verdict.decision == decision
    assert (verdict.near_ties, verdict.real_divergences) == (int(near_tie), int(not near_tie))
    assert verdict.identical_outputs == 19


def test_arms_without_a_common_prompt_cannot_be_judged() -> None:
    other = msgspec.structs.replace(report("drafter", STEADY), prompts=[])
    with pytest.raises(UsageError, match="no prompt in common"):
        judge(report("baseline", STEADY), other, CONFIG, coverage=None)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(0.5, 20), min_size=2, max_size=30), st.floats(0.3, 3))
def test_the_interval_holds_the_measured_ratio(seconds: list[float], factor: float) -> None:
    base, fast = report("baseline", seconds), report("drafter", [value / factor for value in seconds], acceptance=1.5)
    verdict = judge(base, fast, CONFIG, coverage=None)
    low, high = verdict.speedup_interval
    assert low <= verdict.speedup * (1 + 1e-9)
    assert verdict.speedup * (1 - 1e-9) <= high
    assert judge(base, fast, CONFIG, coverage=None) == verdict
