"""What the recorder found to be wrong, in the order in which it should be looked at."""

from console.state.sanitize import one_line
from remote.protocol.telemetry import Diagnosis


def gravest_first(diagnoses: list[Diagnosis]) -> list[Diagnosis]:
    """Errors before warnings, and among equals in the recorder's own order."""
    return sorted(diagnoses, key=lambda each: each.severity != "error")


def diagnosis_summary(diagnosis: Diagnosis) -> str:
    """Its sentence, with its subject before it where the sentence does not name it."""
    summary, subject = one_line(diagnosis.summary), one_line(diagnosis.subject)
    return summary if not subject or subject in summary else f"{subject}: {summary}"
