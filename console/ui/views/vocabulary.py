"""A mapping in full: what it is, what is wrong with it, who uses it, how much of the answers it covers and what is missing."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.state.coverage import curve_rows, format_share, token_words, verdict_words
from console.state.host import HostState
from console.state.moments import format_moment
from console.state.sanitize import one_line
from console.state.units import format_bytes
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from console.ui.words import below_root
from remote.protocol.mappings import CoverageReport
from remote.protocol.reports import Finding, MappingInspection

_LABELS = 11
_ORIGINS = ("source", "store", "counts")
"""Which of the manifest's inputs say where it came from; the others are hashes of files."""
_BAR = 30
_TWO_FROM = 150
"""Columns from which coverage stands beside the rest."""
_GAP = 4
_MARKS = {"error": ("✗", "error"), "warning": ("!", "warning"), "info": ("i", "primary")}


def vocabulary_view(
    found: MappingInspection, coverage: CoverageReport | None, state: HostState, palette: Palette, width: int
) -> RenderableType:
    """`coverage` is what was measured of it last."""
    facts = [*_facts(found, state, palette), *_findings(found.report.findings, palette), *_uses(found, state, palette)]
    covered = _coverage(coverage, state, palette)
    files = [_heading("Files", palette), _files(found, palette)]
    if width < _TWO_FROM:
        return Group(*facts, *covered, *files)
    grid = Table.grid(padding=(0, _GAP), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(Group(*facts, *files), Group(*covered))
    return grid


def _heading(words: str, palette: Palette) -> Text:
    return Text(f"\n{words}", style=f"bold {palette.primary}")


def _facts(found: MappingInspection, state: HostState, palette: Palette) -> list[RenderableType]:
    report = found.report
    good = report.valid
    line = Text(
        "✓ valid" if good else "✗ NOT VALID: it must not be used", style=palette["success" if good else "error"]
    )
    rows = []
    if report.draft_vocab_size is not None:
        target = "?" if report.target_vocab_size is None else f"{report.target_vocab_size:,}"
        ids = "" if found.lowest_id is None else f", ids {found.lowest_id:,} to {found.highest_id:,}"
        rows.append(("tokens", f"{report.draft_vocab_size:,} of the target's {target}{ids}"))
    if report.coverage is not None:
        rows.append(("coverage", f"{format_share(report.coverage)} of what it was built from"))
    if found.special_tokens is not None:
        rows.append(("special", f"{found.special_covered} of the target's {found.special_tokens} have a draft id"))
    made = found.producer or ("Roost" if report.provenance == "roost" else "somebody else")
    when = "" if found.created_at is None else f", {format_moment(found.created_at)}"
    rows.append(("made by", f"{made}{when}, layout {report.layout}"))
    rows += [(f"from {key}", _input(value, state)) for key, value in found.inputs.items() if key in _ORIGINS]
    target_model = found.meta.get("target_model")
    if target_model:
        rows.append(("target", below_root(target_model, state)))
    if found.counts is not None:
        rows.append(("counts", below_root(found.counts, state)))
    return [line, labelled_rows([(name, one_line(words)) for name, words in rows], palette, _LABELS)]


def _input(value: str, state: HostState) -> str:
    """A path below the root, or the beginning of a hash."""
    return below_root(value, state) if "/" in value else value[:12]


def _findings(findings: list[Finding], palette: Palette) -> list[RenderableType]:
    parts: list[RenderableType] = [_heading("Findings", palette)]
    if not findings:
        return [*parts, Text("  ✓ none", style=palette.success)]
    for finding in findings:
        glyph, color = _MARKS[finding.severity]
        line = Text(f"  {glyph} {finding.severity} ", style=palette[color])
        line.append(one_line(finding.code), style=f"bold {palette.foreground}")
        parts += [
            line,
            labelled_rows([("what", one_line(finding.message)), ("fix", one_line(finding.fix))], palette, 6),
        ]
    return parts


def _uses(found: MappingInspection, state: HostState, palette: Palette) -> list[RenderableType]:
    rows = [(use.kind, one_line(below_root(use.path, state))) for use in found.used_by]
    rows += [("backup", one_line(below_root(backup, state))) for backup in found.backups]
    heading = _heading("Who has the same vocabulary", palette)
    return [
        heading,
        labelled_rows(rows, palette, _LABELS) if rows else Text("  nothing on this host", style=palette.quiet),
    ]


def _files(found: MappingInspection, palette: Palette) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    for file in found.report.files:
        table.add_row(
            Text(f"  {one_line(file.name)}", style=palette.foreground),
            Text(format_bytes(file.bytes), style=palette.foreground),
            Text(file.sha256[:12], style=palette.quiet),
        )
    return table


def _coverage(coverage: CoverageReport | None, state: HostState, palette: Palette) -> list[RenderableType]:
    parts: list[RenderableType] = [_heading("Coverage", palette)]
    if coverage is None:
        hint = "  not measured yet: m counts answers and shows the curve and what is missing"
        return [*parts, Text(hint, style=palette.quiet)]
    low = coverage.minimum_coverage is not None and coverage.coverage < coverage.minimum_coverage
    parts.append(Text(f"  {verdict_words(coverage)}", style=palette["error" if low else "foreground"]))
    rows = [
        (source.kind, f"{source.tokens:,} answer tokens in {one_line(below_root(source.path, state))}")
        for source in coverage.sources
    ]
    if coverage.acceptance_length_bound is not None:
        bound = f"no drafter exceeds an acceptance length of {coverage.acceptance_length_bound:.3f}"
        rows.append(("bound", f"{bound} with {coverage.proposals} proposals"))
    parts += [labelled_rows(rows, palette, 14), Text()]
    parts.append(Text("  the best vocabulary of a size covers", style=palette.quiet))
    for row in curve_rows(coverage, _BAR):
        color = palette["accent" if row.is_own else "primary"]
        line = Text(f"  {row.size:>9}  ", style=palette.foreground)
        line.append(f"{row.bar:<{_BAR}}", style=color).append(f"  {row.share}", style=palette.foreground)
        parts.append(line.append("  ◂ this size" if row.is_own else "", style=palette.accent))
    if coverage.missing:
        parts.append(_heading(f"Missing: {coverage.missing_tokens:,} tokens that occur have no draft id", palette))
        parts.append(_missing(coverage, palette))
    return parts


def _missing(coverage: CoverageReport, palette: Palette) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for token in coverage.missing:
        table.add_row(
            Text(f"  {token.token_id:,}", style=palette.quiet),
            Text(f"{token.count:,.6g}", style=palette.foreground),
            Text(format_share(token.share), style=palette.foreground),
            Text(token_words(token), style=palette.foreground),
        )
    return table
