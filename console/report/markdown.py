"""A verdict as a Markdown page: the decision first, then what it rests on and where everything comes from; pure."""

import time
from collections.abc import Sequence

from console.report.page import block, bullets, code, pasteable, picture, table, text
from console.state.sanitize import one_line
from console.state.units import UNKNOWN, format_percent
from console.state.verdicts import CAUSES, load, outputs, suspicion
from remote.protocol.reports import ArmServer, Divergence, LevelVerdict, Provenance, VerdictReport

_HASH_CHARACTERS = 16
_SHOWN_DIVERGENCES = 12
_OPENINGS = {"promote": "Promote", "reject": "Reject", "inconclusive": "Inconclusive"}
_HEADINGS = {
    "promote": "How sound the drafter looks",
    "reject": "What to look at, in this order",
    "inconclusive": "What to look at, in this order",
}


def verdict_markdown(verdict: VerdictReport, plots: Sequence[str] = ()) -> str:
    """The page; `plots` names the pictures beside it. Every word of a host is made harmless."""
    sections = (
        _opening(verdict),
        _levels(verdict.levels),
        picture(plots, "speedup.svg", "Speed-up with the drafter at each load"),
        bullets("What to do", verdict.advice),
        _causes(verdict),
        _accepted(verdict),
        picture(plots, "acceptance.svg", "Acceptance length by category"),
        _served(verdict, plots),
        _compared(verdict),
        _provenance(verdict),
        _limits(verdict),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _opening(verdict: VerdictReport) -> list[str]:
    low, high = verdict.speedup_interval
    concurrency = verdict.levels[0].concurrency if verdict.levels else 1
    name = f" of {text(verdict.provenance.run)}" if verdict.provenance else ""
    return [
        f"# Verdict{name}: {verdict.decision}",
        "",
        f"**{_OPENINGS[verdict.decision]}**, because",
        "",
        *(f"- {text(reason)}" for reason in verdict.reasons),
        "",
        (
            f"{load(concurrency).capitalize()}, a request is answered at {verdict.drafter_tokens_per_s:.2f} tokens per second with "
            f"the drafter and at {verdict.baseline_tokens_per_s:.2f} without it: **{verdict.speedup:.2f} times** the speed, with "
            f"a 95% interval from {low:.2f} to {high:.2f}. A verification brings {verdict.acceptance_length:.2f} tokens."
        ),
    ]


def _levels(levels: Sequence[LevelVerdict]) -> list[str]:
    if not levels:
        return []
    rows = [
        (
            str(level.concurrency),
            f"{level.baseline_tokens_per_s:.2f}",
            f"{level.drafter_tokens_per_s:.2f}",
            f"**{level.speedup:.2f}x** ({level.speedup_interval[0]:.2f} to {level.speedup_interval[1]:.2f})",
            f"{level.acceptance_length:.2f}",
            f"{level.step_cost:.2f}",
            f"{1000 * level.baseline_first_token_s:.0f} → {1000 * level.drafter_first_token_s:.0f}",
            f"{_cores(level.baseline_others_cores)} → {_cores(level.drafter_others_cores)}",
            level.decision if level.counts else f"{level.decision} (does not count)",
        )
        for level in levels
    ]
    return [
        *table(
            (
                "Requests at a time",
                "Without (tok/s)",
                "With (tok/s)",
                "Speed-up (95%)",
                "Acceptance",
                "Break-even",
                "First token (ms)",
                "Others' cores",
                "Verdict",
            ),
            rows,
        ),
        "",
        (
            "Rates are those of one request after its first token. *Acceptance* is the number of tokens per verification, the bonus "
            "token included; *break-even* is the number at which the drafter would cost as much as it brings: the time of a "
            "verification with its drafts, in plain steps. First-token times are medians, without the drafter and with it; "
            "*others' cores* is how many of the host's other processes kept busy meanwhile, in the same order."
        ),
    ]


def _cores(busy: float | None) -> str:
    return UNKNOWN if busy is None else f"{busy:.1f}"


def _causes(verdict: VerdictReport) -> list[str]:
    if not verdict.causes:
        return []
    return [
        f"## {_HEADINGS[verdict.decision]}",
        "",
        *(
            f"{place}. **{CAUSES[cause.cause].capitalize()}** ({suspicion(cause)}): {text(cause.text)}."
            for place, cause in enumerate(verdict.causes, 1)
        ),
    ]


def _accepted(verdict: VerdictReport) -> list[str]:
    lines: list[str] = []
    if verdict.position_acceptance:
        shares = ", ".join(
            f"{format_percent(share)} the {_ordinal(place)}"
            for place, share in enumerate(verdict.position_acceptance, 1)
        )
        lines.append(f"Of all verifications, so many accepted a proposal: {shares}.")
    if verdict.categories:
        rows = [
            (text(one.category), str(one.prompts), f"{one.verifications:,}", f"{one.acceptance_length:.2f}")
            for one in sorted(verdict.categories, key=lambda one: -one.acceptance_length)
        ]
        lines += [
            *([""] if lines else []),
            *table(("Category", "Prompts", "Verifications", "Acceptance length"), rows),
        ]
    return ["## What was accepted", "", *lines] if lines else []


def _served(verdict: VerdictReport, plots: Sequence[str]) -> list[str]:
    if len(verdict.levels) < 2:
        return []
    rows = [
        (
            str(level.concurrency),
            f"{level.baseline_output_tokens_per_s:.1f}",
            f"{level.drafter_output_tokens_per_s:.1f}",
            f"{level.drafter_output_tokens_per_s / level.baseline_output_tokens_per_s:.2f}x",
        )
        for level in verdict.levels
        if level.baseline_output_tokens_per_s > 0
    ]
    shown = picture(plots, "throughput.svg", "Output of the whole server at each load")
    return [
        "## What the whole server puts out",
        "",
        *table(("Requests at a time", "Without (tok/s)", "With (tok/s)", "Ratio"), rows),
        *(["", *shown] if shown else []),
    ]


def _compared(verdict: VerdictReport) -> list[str]:
    lines = [
        "## Are the answers the same?",
        "",
        (
            f"Both arms answered the same {verdict.prompts} prompts greedily in {text(verdict.dtype)}: {outputs(verdict)}. "
            f"A near-tie is a place where the target's two best tokens are so close that rounding decides."
        ),
    ]
    if verdict.divergences:
        shown = verdict.divergences[:_SHOWN_DIVERGENCES]
        rows = [_divergence(one) for one in shown]
        lines += ["", *table(("Prompt", "At a time", "Token", "Without → with", "Gap", "Kind"), rows)]
        if len(verdict.divergences) > len(shown):
            lines += ["", f"And {len(verdict.divergences) - len(shown)} more; `verdict.json` has them."]
    return lines


def _divergence(one: Divergence) -> tuple[str, ...]:
    tokens = " → ".join("end" if token < 0 else str(token) for token in (one.token_baseline, one.token_drafter))
    kind = "near-tie" if one.near_tie else "**different**"
    return (text(one.prompt_id), str(one.concurrency), str(one.position), tokens, f"{one.top_two_logit_gap:.2g}", kind)


def _provenance(verdict: VerdictReport) -> list[str]:
    known = verdict.provenance
    backend = f", {text(verdict.attention_backend)} attention" if verdict.attention_backend else ""
    rows: list[tuple[str, str]] = [("Engine", f"{text(verdict.engine)}, {text(verdict.dtype)}{backend}")]
    if known is None:
        return ["## Where the figures come from", "", *table(("What", "Which"), rows)]
    rows = [
        ("Model", f"{code(known.model)} (fingerprint {_hash(known.model_fingerprint)})"),
        ("Drafter", f"{code(known.drafter)} ({_hash(known.drafter_sha256)})"),
        ("Mapping", f"`d2t.npy` {_hash(known.mapping_sha256)}, coverage {_share(verdict.coverage)}"),
        ("Training data", f"{code(known.train)} ({_hash(known.train_sha256)})"),
        ("Prompts", f"{code(known.evaluation)} ({_hash(known.evaluation_sha256)}), {verdict.prompts} of them"),
        *rows,
        ("Host", ", ".join(map(text, [known.host_name, *known.devices]))),
        *((f"Measured {_arm(server)}", _moment(server.measured_at)) for server in known.servers),
        ("Judged", f"{_moment(known.judged_at)} by release {_hash(known.release)}"),
    ]
    return ["## Where the figures come from", "", *table(("What", "Which"), rows), *_commands(known)]


def _commands(known: Provenance) -> list[str]:
    lines: list[str] = []
    for server in known.servers:
        if server.command:
            lines += [
                "",
                f"The server {_arm(server)} (port 0: it picked one):",
                "",
                *block(pasteable(server.command, server.environment)),
            ]
    return lines


def _limits(verdict: VerdictReport) -> list[str]:
    length = f" of at most {verdict.provenance.max_tokens:,} tokens" if verdict.provenance else ""
    return [
        "## What the figures do not say",
        "",
        (
            "The interval covers the choice of prompts, not what changed on the host between the two arms, which were measured one "
            f"after the other. Decoding was greedy, with answers{length}; sampling accepts less. Other prompts, loads and lengths may "
            "come out otherwise."
        ),
    ]


def _hash(digest: str | None) -> str:
    return "hash not known" if digest is None else f"`{one_line(digest).replace('`', '')[:_HASH_CHARACTERS]}`"


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"


def _arm(server: ArmServer) -> str:
    return "with the drafter" if server.arm == "drafter" else "without the drafter"


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _ordinal(place: int) -> str:
    suffix = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"
