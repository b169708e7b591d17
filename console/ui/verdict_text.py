"""The verdict and the help as text for a dialog."""

from rich.text import Text

from console.state.units import format_percent
from console.ui.keymap import ACTIONS
from console.ui.words import VERDICT_GLYPHS
from remote.protocol.reports import VerdictReport


def verdict_text(verdict: VerdictReport) -> Text:
    """Decision, both rates, acceptance, outputs, reasons and advice."""
    low, high = verdict.speedup_interval
    text = Text()
    text.append(f"{VERDICT_GLYPHS[verdict.decision]} {verdict.decision}\n\n", style="bold")
    rows = (
        ("without the drafter", f"{verdict.baseline_tokens_per_s:.2f} tok/s"),
        ("with the drafter", f"{verdict.drafter_tokens_per_s:.2f} tok/s"),
        ("speed-up", f"{verdict.speedup:.2f}x, 95% interval {low:.2f}x to {high:.2f}x"),
        ("acceptance length", f"{verdict.acceptance_length:.2f} tokens a verification, the bonus token included"),
        ("coverage", f"{format_percent(verdict.coverage)} of the answers' tokens are in the draft vocabulary"),
        (
            "greedy outputs",
            (
                f"{verdict.identical_outputs} of {verdict.prompts} identical, {verdict.near_ties} near-ties, "
                f"{verdict.real_divergences} different"
            ),
        ),
        ("measured with", f"{verdict.engine}, {verdict.dtype}"),
    )
    for label, value in rows:
        text.append(f"{label:<20} {value}\n")
    for heading, sentences in (("Because", verdict.reasons), ("What to look at", verdict.advice)):
        if sentences:
            text.append(f"\n{heading}\n", style="bold")
            text.append("".join(f"  {sentence}\n" for sentence in sentences))
    return text


def help_text() -> Text:
    """Keys and the meaning of what is on the screen."""
    text = Text()
    for action in ACTIONS:
        text.append(f"{'?' if action.key == 'question_mark' else action.key:>4}  ", style="bold")
        text.append(f"{action.help}\n")
    text.append("  ^p  ", style="bold")
    text.append("All actions in a palette\n\n")
    text.append(
        "Top line: the host, the link's round trip, the age of the last reading, the newest run.\n"
        "Second line: the stages of that run; ✓ done or kept from before, ▶ running, ✗ failed.\n"
        "Devices: GPUs; on a host without any, processor cores, and it says so.\n"
        "Disks: what is used and free, how fast they fill, and when they will be full.\n"
        "Jobs: live ones first; the jobs of a run are indented. Enter opens a log.\n"
        "Acceptance length: tokens per verification, the bonus token included; 1.0 means useless.\n\n"
        "Jobs run on the host under supervisors of their own. Closing this screen stops nothing."
    )
    return text
