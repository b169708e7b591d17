"""The words for a verdict that the command, the screen and the page share."""

from console.state.units import format_percent
from remote.protocol.reports import Cause, LevelVerdict, VerdictReport

CAUSES = {
    "coverage": "coverage",
    "layer_ids": "layer ids",
    "context_length": "context length",
    "training_data": "training data",
    "serving": "training against serving",
}
"""What makes a drafter weak, in the order in which to look."""


def load(concurrency: int) -> str:
    """How many requests share the server, in words."""
    return "one at a time" if concurrency == 1 else f"{concurrency} at a time"


def interval(level: LevelVerdict) -> str:
    """The speed-up of a level with its interval, and whether it counts."""
    low, high = level.speedup_interval
    aside = "" if level.counts else ", does not count"
    return f"{level.speedup:.2f}x (95% interval {low:.2f}x to {high:.2f}x{aside})"


def suspicion(cause: Cause) -> str:
    """Whether the run's figures speak for a cause."""
    return "not known" if cause.suspect is None else "look here" if cause.suspect else "looks right"


def outputs(verdict: VerdictReport) -> str:
    """How many greedy outputs are the same with the drafter and without."""
    same = f"{verdict.identical_outputs} of {verdict.prompts} identical"
    return f"{same}, {verdict.near_ties} near-ties, {verdict.real_divergences} different"


def positions(verdict: VerdictReport) -> str:
    """How often each proposal is accepted; empty where the engine does not tell."""
    return ", ".join(format_percent(share) for share in verdict.position_acceptance)


def causes_to_show(verdict: VerdictReport) -> list[Cause]:
    """All of them for a drafter that was not promoted, in their order; else none."""
    return [] if verdict.decision == "promote" else verdict.causes
