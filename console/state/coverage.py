"""A mapping's coverage in words and bars, the same for the command line and the screen; pure."""

import json
from typing import NamedTuple

from console.state.sanitize import sanitize
from remote.protocol.mappings import CoverageReport, MissingToken

_MOST_DIGITS = 4


class CurveRow(NamedTuple):
    """A size of draft vocabulary, its best coverage as a bar and in words, and whether it is the mapping's own size."""

    size: str
    bar: str
    share: str
    is_own: bool


def format_share(share: float) -> str:
    """A share of tokens with the digits that matter near 1: 99.9%, 99.98%, and 100% for all of them alone."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    for digits in range(1, _MOST_DIGITS + 1):
        shown = f"{share:.{digits}%}"
        if float(shown[:-1]) not in (0.0, 100.0):
            return shown
    return f">{100 - 10**-_MOST_DIGITS}%" if share > 0.5 else f"<{10**-_MOST_DIGITS:.{_MOST_DIGITS}f}%"


def curve_rows(report: CoverageReport, width: int) -> list[CurveRow]:
    """The curve from the smallest size to the largest, bars at most `width` wide."""
    return [
        CurveRow(
            f"{point.draft_vocab_size:,}",
            "█" * round(point.coverage * width),
            format_share(point.coverage),
            point.draft_vocab_size == report.draft_vocab_size,
        )
        for point in report.curve
    ]


def verdict_words(report: CoverageReport) -> str:
    """What the figures come to."""
    covered = f"covers {format_share(report.coverage)} of the answers' tokens"
    lost = report.best_coverage - report.coverage
    if report.mapping is None:
        best = ""
    elif lost <= 0:
        best = ", as much as any of its size can"
    else:
        best = f"; the best of its size covers {format_share(report.best_coverage)}"
    if report.minimum_coverage is None:
        return covered + best
    reached = "enough" if report.coverage >= report.minimum_coverage else "too little"
    return f"{covered}{best}; {format_share(report.minimum_coverage)} was asked for: {reached}"


def is_enough(report: CoverageReport) -> bool:
    """Whether the coverage reaches what was asked for."""
    return report.minimum_coverage is None or report.coverage >= report.minimum_coverage


def token_words(token: MissingToken) -> str:
    """A token's text between quotation marks, so that its spaces are seen."""
    return "(not known)" if token.text is None else sanitize(json.dumps(token.text, ensure_ascii=False))
