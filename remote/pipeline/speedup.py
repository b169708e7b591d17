"""What a drafter changes with so many requests at a time: both arms' rates on the same prompts, and how sure that is; pure."""

import statistics
from typing import NamedTuple

import numpy as np

from remote.errors import UsageError
from remote.protocol.reports import ArmLevel, CategoryAcceptance, Decision, LevelVerdict, PromptResult

_RESAMPLES = 2000
_INTERVAL_PERCENT = (2.5, 97.5)
MATERIAL_SHARE = 0.15
"""Of the host's cores, by choice: above what a screen and a recorder take, below one process more on a small host."""
Figures = np.ndarray[tuple[int, int], np.dtype[np.float64]]
_NOTHING = 1e-9
"""In place of no tokens or no time, so that a prompt answered with a single token cannot divide by zero."""


class Pair(NamedTuple):
    """One prompt as both arms answered it."""

    baseline: PromptResult
    drafter: PromptResult


def judge_level(
    baseline: ArmLevel,
    drafter: ArmLevel,
    *,
    minimum_speedup: float,
    counts: bool = True,
    cores: int | None = None,
    seed: int = 0,
) -> LevelVerdict:
    """Promote when the speed-up is surely above the minimum, reject when it surely is not, else inconclusive.

    It is inconclusive, too, where others kept the host's `cores` busy beside one arm more than beside the other.

    Raises UsageError when the arms share no prompt.
    """
    pairs = pair(baseline, drafter)
    speedup = measured_speedup(pairs)
    low, high = speedup_interval(pairs, seed)
    low, high = min(low, speedup), max(high, speedup)
    acceptance = drafter.acceptance_length or 1.0
    disturbed = is_disturbed(baseline, drafter, cores)
    return LevelVerdict(
        concurrency=baseline.concurrency,
        counts=counts,
        decision="inconclusive" if disturbed else _decide(low, high, minimum_speedup),
        baseline_tokens_per_s=baseline.decode_tokens_per_s,
        drafter_tokens_per_s=drafter.decode_tokens_per_s,
        speedup=speedup,
        speedup_interval=(low, high),
        baseline_output_tokens_per_s=baseline.output_tokens_per_s,
        drafter_output_tokens_per_s=drafter.output_tokens_per_s,
        baseline_first_token_s=statistics.median(one.time_to_first_token_s for one in baseline.prompts),
        drafter_first_token_s=statistics.median(one.time_to_first_token_s for one in drafter.prompts),
        acceptance_length=acceptance,
        step_cost=acceptance / speedup,
        baseline_others_cores=baseline.others_cores,
        drafter_others_cores=drafter.others_cores,
        disturbed=disturbed,
    )


def is_disturbed(baseline: ArmLevel, drafter: ArmLevel, cores: int | None) -> bool:
    """Whether others were at work beside one arm so much more than beside the other that the rates cannot be compared."""
    loads = baseline.others_cores, drafter.others_cores
    if cores is None or loads[0] is None or loads[1] is None:
        return False
    return abs(loads[0] - loads[1]) > MATERIAL_SHARE * cores


def _decide(low: float, high: float, minimum_speedup: float) -> Decision:
    if high <= minimum_speedup:
        return "reject"
    return "promote" if low > minimum_speedup else "inconclusive"


def pair(baseline: ArmLevel, drafter: ArmLevel) -> list[Pair]:
    """The prompts that both arms answered, by their ids; raises UsageError where there is none."""
    others = {prompt.prompt_id: prompt for prompt in drafter.prompts}
    pairs = [Pair(prompt, others[prompt.prompt_id]) for prompt in baseline.prompts if prompt.prompt_id in others]
    if not pairs:
        raise UsageError("the two arms have no prompt in common", hint="evaluate both on the same file")
    return sorted(pairs, key=lambda both: both.baseline.prompt_id)


def measured_speedup(pairs: list[Pair]) -> float:
    """The ratio of both arms' token-weighted decode rates."""
    return ratio(_figures(pairs))


def speedup_interval(pairs: list[Pair], seed: int) -> tuple[float, float]:
    """The 95% interval of the speed-up by a bootstrap over prompts, each with both its measurements."""
    return ratio_interval(_figures(pairs), seed)


def ratio(figures: Figures) -> float:
    """The second rate of all prompts over the first; `figures` [prompts, 4] holds tokens and seconds of each, in this order."""
    return float(_ratios(figures[None])[0])


def ratio_interval(figures: Figures, seed: int) -> tuple[float, float]:
    """The 95% interval of `ratio` by a bootstrap over prompts."""
    chosen = np.random.default_rng(seed).integers(0, len(figures), (_RESAMPLES, len(figures)))
    low, high = np.percentile(_ratios(figures[chosen]), _INTERVAL_PERCENT)
    return float(low), float(high)


def _figures(pairs: list[Pair]) -> Figures:
    """Tokens and seconds of decoding, without and with the drafter: [prompts, 4]."""
    return np.array([[*_decoding(one.baseline), *_decoding(one.drafter)] for one in pairs])


def _decoding(prompt: PromptResult) -> tuple[float, float]:
    tokens, seconds = len(prompt.output_ids) - 1, prompt.end_to_end_s - prompt.time_to_first_token_s
    return max(tokens, _NOTHING), max(seconds, _NOTHING)


def _ratios(
    figures: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The speed-up of each resample: [resamples, prompts, 4] to [resamples]."""
    base_tokens, base_seconds, draft_tokens, draft_seconds = figures.sum(axis=1).T
    return (draft_tokens / draft_seconds) / (base_tokens / base_seconds)


def acceptance_by_category(level: ArmLevel) -> list[CategoryAcceptance]:
    """The acceptance length of each category in alphabetical order; a prompt's first token comes from its prefill."""
    by_category: dict[str, list[PromptResult]] = {}
    for prompt in level.prompts:
        if prompt.category is not None and prompt.verify_calls:
            by_category.setdefault(prompt.category, []).append(prompt)
    return [
        CategoryAcceptance(
            category=category,
            prompts=len(prompts),
            verifications=(calls := sum(prompt.verify_calls or 0 for prompt in prompts)),
            acceptance_length=sum(len(prompt.output_ids) - 1 for prompt in prompts) / calls,
        )
        for category, prompts in sorted(by_category.items())
    ]


def acceptance_by_position(level: ArmLevel) -> list[float]:
    """The share of verifications that accepted the first, the second, … proposal; empty where the engine does not tell."""
    width = max((len(prompt.accepted_drafts) for prompt in level.prompts), default=0)
    counts = [0] * width
    for prompt in level.prompts:
        for accepted, times in enumerate(prompt.accepted_drafts):
            counts[accepted] += times
    total = sum(counts)
    return [sum(counts[place:]) / total for place in range(1, width)] if total else []
