"""What rules find becomes what is told: only what lasts is told, and what was told stays until it is gone for a while; pure."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from remote.protocol.telemetry import Diagnosis, DiagnosisCode

_RELEASE_S = 10.0

Severity = Literal["warning", "error"]


class Finding(NamedTuple):
    """What one rule sees at one moment.

    It is told once it was found for `hold_s`, a lapse of at most `lapse_s` forgiven, and dropped when it was not found for
    `release_s`. `kind` tells apart what has the same code and subject. `at` is when it began, where that is known better.
    """

    code: DiagnosisCode
    severity: Severity
    subject: str
    summary: str
    evidence: str
    advice: str
    job_id: str | None = None
    kind: str = ""
    hold_s: float = 0.0
    lapse_s: float = 0.0
    release_s: float = _RELEASE_S
    at: float | None = None

    @property
    def identity(self) -> tuple[str, str, str | None, str]:
        """What makes it the same finding from one moment to the next."""
        return self.code, self.subject, self.job_id, self.kind


class _Held:
    """A finding that is followed: `since` by the host's clock, the other times by the time that passed."""

    def __init__(self, finding: Finding, clock_s: float, at: float) -> None:
        self.finding = finding
        self.since = at if finding.at is None else min(finding.at, at)
        self.first_s = clock_s
        self.last_s = clock_s
        self.is_told = False


class Holding:
    """Follows findings from one moment to the next."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str | None, str], _Held] = {}

    def advance(self, findings: Iterable[Finding], *, clock_s: float, at: float, is_gap: bool) -> list[Diagnosis]:
        """Take what is found now; what is to be told.

        `clock_s` only goes forward; `at` is the host's clock, and no `since` is later. `is_gap` says that nothing is known
        of the time just before: what was not told yet begins anew, what is told stays if it is found again.
        """
        if is_gap:
            self._held = {identity: held for identity, held in self._held.items() if held.is_told}
        for finding in findings:
            held = self._held.setdefault(finding.identity, _Held(finding, clock_s, at))
            held.finding, held.last_s = finding, clock_s
            held.is_told = held.is_told or clock_s - held.first_s >= finding.hold_s
        self._held = {identity: held for identity, held in self._held.items() if _stays(held, clock_s)}
        for held in self._held.values():
            held.since = min(held.since, at)
        return [_told(held) for held in self._held.values() if held.is_told]


def _stays(held: _Held, clock_s: float) -> bool:
    patience_s = held.finding.release_s if held.is_told else held.finding.lapse_s
    return clock_s - held.last_s <= patience_s


def _told(held: _Held) -> Diagnosis:
    found = held.finding
    return Diagnosis(
        code=found.code,
        severity=found.severity,
        subject=found.subject,
        since=held.since,
        summary=found.summary,
        evidence=found.evidence,
        advice=found.advice,
        job_id=found.job_id,
    )
