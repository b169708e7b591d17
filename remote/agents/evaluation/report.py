"""From timed completions to the figures of an arm, and where two arms' outputs part; pure."""

from collections.abc import Callable, Sequence

from remote.errors import WorkFailed
from remote.protocol.reports import ArmLevel, Divergence, PromptResult

_REPEATED_SHARE = 0.5
_REPEATED_NGRAM = 4
_MINIMUM_JUDGED_TOKENS = 16


def decode_rate(prompts: Sequence[PromptResult]) -> float | None:
    """Tokens per second after the first: sum of (out - 1) over sum of (end to end - time to first token).

    None where no prompt was answered with two tokens.
    """
    tokens = sum(max(0, len(prompt.output_ids) - 1) for prompt in prompts)
    seconds = sum(prompt.end_to_end_s - prompt.time_to_first_token_s for prompt in prompts)
    return tokens / seconds if tokens and seconds > 0 else None


def end_to_end_rate(prompts: Sequence[PromptResult]) -> float:
    """Tokens per second with the prefill included."""
    seconds = sum(prompt.end_to_end_s for prompt in prompts)
    return sum(len(prompt.output_ids) for prompt in prompts) / seconds if seconds > 0 else 0.0


def acceptance_length(prompts: Sequence[PromptResult]) -> float | None:
    """Tokens per verification, the bonus token included: all output tokens but each prompt's first, over all verifications.

    The first token of a prompt comes from its prefill, not from a verification.
    """
    calls = sum(prompt.verify_calls or 0 for prompt in prompts)
    return sum(len(prompt.output_ids) - 1 for prompt in prompts) / calls if calls else None


def summarise(
    concurrency: int, prompts: Sequence[PromptResult], seconds: float, *, others_cores: float | None = None
) -> ArmLevel:
    """The figures of one level, whose prompts took `seconds` together while others kept `others_cores` busy.

    Raises WorkFailed where no answer has two tokens, and so no speed.
    """
    decode = decode_rate(prompts)
    if decode is None:
        raise WorkFailed(
            f"none of {len(prompts)} answers, {concurrency} at a time, has more than one token: there is no speed to measure",
            hint="look at the prompts, and at the target's chat template and end-of-sequence tokens",
        )
    return ArmLevel(
        concurrency=concurrency,
        prompts=list(prompts),
        seconds=seconds,
        decode_tokens_per_s=decode,
        end_to_end_tokens_per_s=end_to_end_rate(prompts),
        output_tokens_per_s=sum(len(prompt.output_ids) for prompt in prompts) / seconds if seconds > 0 else 0.0,
        acceptance_length=acceptance_length(prompts),
        others_cores=others_cores,
    )


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """The first position at which two outputs differ; one that ends where the other goes on differs there. None = equal."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def compare(
    baseline: ArmLevel,
    drafter: ArmLevel,
    *,
    gap_at: Callable[[str, list[int]], float],
    near_tie_logit_gap: float,
) -> tuple[int, list[Divergence]]:
    """How many prompts both arms answered, and where they part; `gap_at(prompt_id, common_output)` asks for the top-two gap."""
    others = {prompt.prompt_id: prompt for prompt in drafter.prompts}
    compared = 0
    divergences: list[Divergence] = []
    for prompt in baseline.prompts:
        other = others.get(prompt.prompt_id)
        if other is None:
            continue
        compared += 1
        position = first_difference(prompt.output_ids, other.output_ids)
        if position is None:
            continue
        gap = gap_at(prompt.prompt_id, list(prompt.output_ids[:position]))
        divergences.append(
            Divergence(
                concurrency=baseline.concurrency,
                prompt_id=prompt.prompt_id,
                position=position,
                token_baseline=_token_at(prompt.output_ids, position),
                token_drafter=_token_at(other.output_ids, position),
                top_two_logit_gap=gap,
                near_tie=gap < near_tie_logit_gap,
            )
        )
    return compared, divergences


def _token_at(tokens: Sequence[int], position: int) -> int:
    """The token there, or -1 where the output had ended."""
    return tokens[position] if position < len(tokens) else -1


def oddity(output_ids: Sequence[int]) -> str | None:
    """What makes an output suspicious: emptiness, or mostly the same few tokens over and over."""
    if len(output_ids) <= 1:
        return "empty"
    if len(output_ids) < _MINIMUM_JUDGED_TOKENS:
        return None
    ngrams = [tuple(output_ids[i : i + _REPEATED_NGRAM]) for i in range(len(output_ids) - _REPEATED_NGRAM + 1)]
    return "repetitive" if len(set(ngrams)) < len(ngrams) * _REPEATED_SHARE else None
