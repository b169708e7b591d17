"""One line: which host, how the link is, how old the reading is, what the newest run is."""

from rich.text import Text
from textual.widgets import Static

from console.state.host import HostState
from console.state.link import Closed, Connecting, Lost, Up
from console.state.units import format_duration
from console.ui.widgets.palette import Palette
from console.ui.words import job_mark

_STALE_S = 5.0


class TopBar(Static):
    """The host badge."""

    def show(self, state: HostState, now: float, alert_count: int, palette: Palette) -> None:
        """Render the state."""
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {state.name} ", style=f"bold {palette.primary}")
        text.append_text(_link(state, now, palette))
        if state.sample_at is not None:
            age = now - state.sample_at
            color = palette.warning if age > _STALE_S else palette.quiet
            text.append(f"  reading {format_duration(age)} ago", style=color)
        run = state.newest_run()
        if run is not None:
            mark = job_mark(run.state)
            text.append(f"  {run.job_id} ", style=palette.foreground)
            text.append(f"{mark.glyph} {mark.word}", style=palette[mark.color])
        if alert_count:
            text.append(f"  ! {alert_count} alert{'s' if alert_count > 1 else ''}", style=f"bold {palette.warning}")
        self.update(text)


def _link(state: HostState, now: float, palette: Palette) -> Text:
    match state.link:
        case Up(latency_s=latency):
            return Text(f"● connected {latency * 1000:.0f} ms", style=palette.success)
        case Connecting(attempt=attempt):
            return Text(f"◌ connecting{f' (attempt {attempt})' if attempt > 1 else ''}", style=palette.accent)
        case Lost(since=since, retry_at=retry_at):
            wait = max(0.0, retry_at - now)
            return Text(
                f"✗ link lost {format_duration(now - since)} ago, next try in {wait:.0f} s", style=palette.error
            )
        case Closed():
            return Text("✗ link closed", style=palette.error)
