"""What `roost vocabulary` says to people."""

from console.state.coverage import curve_rows, format_share, token_words, verdict_words
from console.state.mappings import CopyPlan
from console.state.sanitize import one_line
from console.state.units import format_bytes
from remote.protocol.mappings import CoverageReport
from remote.protocol.reports import MappingInspection, MappingReport

_BAR = 30


def mapping_lines(report: MappingReport) -> list[str]:
    """A mapping's report: the judgement, the files, every finding with its fix."""
    judgement = "valid" if report.valid else "NOT VALID: it must not be used"
    lines = [f"{one_line(report.path)}: {judgement}"]
    if report.draft_vocab_size is not None:
        target = "?" if report.target_vocab_size is None else f"{report.target_vocab_size:,}"
        coverage = "" if report.coverage is None else f", coverage {report.coverage:.1%}"
        made = "by Roost" if report.provenance == "roost" else "elsewhere"
        lines.append(f"  {target} -> {report.draft_vocab_size:,} tokens{coverage}, layout {report.layout}, made {made}")
    if report.against:
        lines.append(f"  compared with {', '.join(map(one_line, report.against))}")
    lines += [f"  {one_line(file.name):<24} {file.bytes:>9,} bytes  sha256 {file.sha256[:16]}" for file in report.files]
    for finding in report.findings:
        lines.append(f"  {finding.severity} [{one_line(finding.code)}] {one_line(finding.message)}")
        lines.append(f"    fix: {one_line(finding.fix)}")
    return lines


def inspection_lines(found: MappingInspection) -> list[str]:
    """A mapping in full."""
    lines = mapping_lines(found.report)
    if found.lowest_id is not None:
        lines.append(f"  target ids {found.lowest_id:,} to {found.highest_id:,}")
    if found.special_tokens is not None:
        lines.append(
            f"  special tokens of the target with a draft id: {found.special_covered} of {found.special_tokens}"
        )
    if found.producer is not None:
        lines.append(f"  made by {one_line(found.producer)}")
    lines += [f"  from {one_line(key)}: {one_line(value)}" for key, value in sorted(found.inputs.items())]
    lines += [f"  says {one_line(key)}: {one_line(value)}" for key, value in found.meta.items()]
    if found.counts is not None:
        lines.append(f"  counts are kept in {one_line(found.counts)}")
    lines += [f"  the same vocabulary: {use.kind} {one_line(use.path)}" for use in found.used_by]
    return lines + [f"  backup: {one_line(backup)}" for backup in found.backups]


def coverage_lines(report: CoverageReport) -> list[str]:
    """How much is covered, the curve, what is missing, what follows."""
    name = one_line(report.mapping) if report.mapping else f"the best {report.draft_vocab_size:,} tokens"
    lines = [f"{name}: {verdict_words(report)}"]
    for source in report.sources:
        weight = "" if source.weight == 1 else f", each {source.weight:g} times"
        lines.append(f"  counted {source.tokens:,} answer tokens in {source.kind} {one_line(source.path)}{weight}")
    lines.append(f"  {report.distinct_tokens:,} of the target's {report.target_vocab_size:,} tokens occur")
    if report.acceptance_length_bound is not None and report.best_acceptance_length_bound is not None:
        lines.append(
            f"  with {report.proposals} proposals no drafter exceeds an acceptance length of "
            f"{report.acceptance_length_bound:.3f} on these answers ({report.best_acceptance_length_bound:.3f} with the best "
            f"vocabulary of this size; {report.proposals} proposals allow {report.proposals + 1} at most)"
        )
    lines.append("  the best vocabulary of a size covers")
    lines += [
        f"  {row.size:>10}  {row.bar:<{_BAR}}  {row.share}{'  <- this size' if row.is_own else ''}"
        for row in curve_rows(report, _BAR)
    ]
    if report.missing:
        lines.append(f"  {report.missing_tokens:,} tokens that occur have no draft id; the most frequent")
    lines += [
        f"  {token.token_id:>10,}  {token.count:>12,.6g}  {format_share(token.share):>8}  {token_words(token)}"
        for token in report.missing
    ]
    return lines


def copy_plan_lines(plan: CopyPlan) -> list[str]:
    """What a copy would do."""
    files = f"{len(plan.source.files)} files, {format_bytes(sum(file.bytes for file in plan.source.files))}"
    lines = [
        f"copies  {one_line(plan.source.path)}, {files}",
        f"to      {one_line(plan.destination)} on {plan.host}",
        f"there   {plan.consequence}",
        *(f"✗ {one_line(problem)}" for problem in plan.problems),
    ]
    return [*lines, "needs --replace"] if plan.replaces else lines
