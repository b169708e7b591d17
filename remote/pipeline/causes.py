"""Why a drafter may serve badly, held against this run's own figures, in the order in which to look; pure."""

import math
from collections.abc import Sequence

from remote.pipeline.evidence import Evidence
from remote.protocol.reports import ArmLevel, Cause

LOW_COVERAGE = 0.8
"""A token outside the draft vocabulary ends every chain of proposals: at 0.8 three proposals bring at most 2.95 tokens."""
FEW_CONVERSATIONS = 50_000
"""They gave an acceptance length of about 1.9 (SpecForge#128); published drafters had 296,000 to 600,000."""
MANY_LONG_TEXTS = 0.25
"""The share of evaluated texts that may be longer than anything that the drafter was trained on."""
SERVED_SHARE = 0.6
"""The share of the simulated proposals that serving must accept. Test text is of the training's own kind, so a little less is
normal; a wrong layer, mapping or template costs nearly all of them.
"""


def find_causes(evidence: Evidence, served: ArmLevel, positions: Sequence[float]) -> list[Cause]:
    """Each cause with what speaks for or against it; `positions` as in `VerdictReport.position_acceptance`."""
    return [
        _coverage(evidence),
        _layer_ids(evidence),
        _context_length(evidence, served),
        _training_data(evidence),
        _serving(evidence, served.acceptance_length, positions),
    ]


def _coverage(known: Evidence) -> Cause:
    sizes = ""
    if known.draft_vocab_size is not None and known.target_vocab_size is not None:
        sizes = f" ({known.draft_vocab_size:,} of {known.target_vocab_size:,} tokens)"
    shares = [
        (share, words)
        for share, words in (
            (known.coverage, "of the tokens that it was trained to say"),
            (known.evaluated_coverage, "of the target's answers here"),
        )
        if share is not None
    ]
    if not shares:
        text = f"the draft vocabulary{sizes} was made elsewhere and nobody noted its coverage"
        return Cause(cause="coverage", suspect=None, text=text)
    least = min(share for share, _ in shares)
    most = math.fsum(least**position for position in range(known.proposals + 1))
    covered = " and ".join(f"{share:.1%} {words}" for share, words in shares)
    text = f"the draft vocabulary{sizes} covers {covered}, which bounds the acceptance length at about {most:.2f}"
    suspect = least < LOW_COVERAGE
    return Cause(
        cause="coverage", suspect=suspect, text=f"{text}: a larger one, or one of such data" if suspect else text
    )


def _layer_ids(known: Evidence) -> Cause:
    captured, served = known.captured_layer_ids, known.served_layer_ids
    if captured is None or served is None:
        missing = "the store does not say which layers it holds" if captured is None else "its config names no layers"
        return Cause(
            cause="layer_ids", suspect=None if captured is None else True, text=f"{missing}: compare them by hand"
        )
    if captured != served:
        text = f"it learned from layers {_listed(captured)} and is served with {_listed(served)}, by the engine's count"
        return Cause(cause="layer_ids", suspect=True, text=text)
    text = f"captured and served layers are the same, {_listed(captured)} by the engine's count"
    return Cause(cause="layer_ids", suspect=False, text=text)


def _context_length(known: Evidence, served: ArmLevel) -> Cause:
    lengths = [prompt.input_tokens + len(prompt.output_ids) for prompt in served.prompts]
    longest, parts, suspect = max(lengths, default=0), list[str](), False
    if known.positions is not None and known.served_context is not None:
        parts.append(f"it knows {known.positions:,} positions, the server takes {known.served_context:,} tokens")
        suspect = known.positions < min(known.served_context, longest)
    if known.window is not None:
        longer = sum(length > known.window for length in lengths)
        parts.append(
            f"it was trained on up to {known.window:,} tokens at a time, {longer} of {len(lengths)} evaluated texts are longer "
            f"(up to {longest:,})"
        )
        suspect = suspect or longer > MANY_LONG_TEXTS * len(lengths)
    if not parts:
        return Cause(cause="context_length", suspect=None, text="its config does not say how many positions it knows")
    return Cause(cause="context_length", suspect=suspect, text="; ".join(parts))


def _training_data(known: Evidence) -> Cause:
    if known.conversations is None or not known.tokens:
        return Cause(cause="training_data", suspect=None, text="the store does not say what it holds")
    text = f"{known.conversations:,} conversations of {known.tokens:,} tokens"
    if known.steps is not None and known.trained_tokens is not None:
        text += f", read {known.trained_tokens / known.tokens:.1f} times in {known.steps:,} steps"
    suspect = known.conversations < FEW_CONVERSATIONS
    if suspect:
        text += f"; {FEW_CONVERSATIONS:,} of the target's own answers are a small training"
    return Cause(cause="training_data", suspect=suspect, text=text)


def _serving(known: Evidence, served: float | None, positions: Sequence[float]) -> Cause:
    simulated = known.simulated_acceptance
    if simulated is None or served is None:
        return Cause(cause="serving", suspect=None, text="the training measured no acceptance length to compare with")
    text = f"the training saw an acceptance length of {simulated:.2f} on test text, serving reached {served:.2f}"
    if known.first_accuracy is not None and positions:
        text += (
            f"; the first proposal was right {known.first_accuracy:.0%} of the time there and {positions[0]:.0%} here"
        )
    suspect = served - 1 < SERVED_SHARE * (simulated - 1)
    if suspect:
        text += (
            ": what is served is not what was trained (layers, mapping, chat template, final norm, dtype), or these prompts "
            "are of another kind"
        )
    return Cause(cause="serving", suspect=suspect, text=text)


def _listed(layer_ids: Sequence[int]) -> str:
    return ", ".join(map(str, layer_ids))
