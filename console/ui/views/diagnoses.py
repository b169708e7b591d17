"""What is wrong: since when, what shows it, what to do."""

from rich.console import Group, RenderableType
from rich.text import Text

from console.state.alerts import alerts
from console.state.diagnoses import diagnosis_summary, gravest_first
from console.state.host import HostState
from console.state.moments import format_moment
from console.state.units import format_duration
from console.ui.views.rows import labelled_rows
from console.ui.widgets.palette import Palette
from remote.protocol.telemetry import Diagnosis


def diagnoses_view(state: HostState, now: float, host_now: float, palette: Palette) -> RenderableType:
    """The recorder's diagnoses, the gravest first, then what the console itself has to say."""
    diagnoses = gravest_first(state.sample.diagnoses) if state.sample is not None else []
    told = {diagnosis_summary(each) for each in diagnoses}
    others = [alert for alert in alerts(state, now) if alert.text not in told]
    parts: list[RenderableType] = [_diagnosis(each, host_now, palette) for each in diagnoses]
    parts += [
        Text(f"{alert}\n", style=f"bold {palette.error if alert.is_grave else palette.warning}") for alert in others
    ]
    if not parts:
        return Text("Nothing is wrong, as far as the host's recorder and this console can tell.", style=palette.quiet)
    return Group(*parts)


def _diagnosis(diagnosis: Diagnosis, host_now: float, palette: Palette) -> RenderableType:
    grave = diagnosis.severity == "error"
    heading = Text(f"{'✗' if grave else '!'} ", style=f"bold {palette.error if grave else palette.warning}")
    heading.append(diagnosis_summary(diagnosis))
    age = format_duration(max(0.0, host_now - diagnosis.since))
    rows = [
        ("since", f"{age} ago, {format_moment(diagnosis.since)}"),
        ("seen by", diagnosis.evidence),
        ("do", diagnosis.advice),
        ("about", diagnosis.job_id or ""),
        ("code", diagnosis.code),
    ]
    return Group(heading, labelled_rows([row for row in rows if row[1]], palette), Text())
