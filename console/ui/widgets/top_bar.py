"""One line: which host, how the link is, how old the reading is, how much waits for a yes, what the newest run is, how many alerts there are."""

from rich.text import Text

from console.state.alerts import Alert
from console.state.host import STALE_S, HostState
from console.state.link import Closed, Connecting, Lost, Up
from console.state.units import format_duration
from console.ui.messages import ActionWanted
from console.ui.widgets.lines import Lines
from console.ui.widgets.palette import Palette
from console.ui.words import age_of, job_mark, run_name

_STALE_S = 5.0


class TopBar(Lines):
    """The host badge."""

    def on_click(self) -> None:
        """All actions."""
        self.post_message(ActionWanted("command_palette"))

    def show(
        self, state: HostState, now: float, host_now: float, found: list[Alert], palette: Palette, *, replay: str
    ) -> None:
        """Render the state; `replay` says where a replay is, and is empty for a host."""
        text = Text()
        text.append(f" {state.name} ", style=f"bold {palette.primary}")
        if replay:
            text.append(f"{replay}  ", style=f"bold {palette.warning}")
        if not replay or not isinstance(state.link, Up):
            text.append_text(link_text(state, now, palette))
        if state.sample is not None and state.sample.gpu_source == "simulated":
            text.append("  SIMULATED GPUs", style=f"bold {palette.warning}")
        if state.sample_at is not None and not (replay and now - state.sample_at <= _STALE_S):
            age = now - state.sample_at
            color = palette.warning if age > _STALE_S else palette.quiet
            text.append(f"  sample {format_duration(age)} ago", style=color)
        if state.approvals is not None and state.approvals.count:
            text.append(f"  ? {state.approvals.count} to approve", style=f"bold {palette.warning}")
        run = state.newest_run()
        if run is not None:
            mark = job_mark(run.state)
            text.append(f"  run {run_name(run)} ", style=palette.foreground)
            text.append(f"{mark.glyph} {mark.word} {age_of(run, host_now)}", style=palette[mark.color])
        if found:
            width = self.size.width or 80
            text.truncate(width - len(f"! {len(found)}") - 3, overflow="ellipsis")
            text.append_text(_alerts(found, width - text.cell_len, palette))
        self.put(text)


def _alerts(found: list[Alert], room: int, palette: Palette) -> Text:
    """How many, under the mark of the gravest."""
    grave = found[0].is_grave
    words = f"{'✗' if grave else '!'} {len(found)}"
    words += f" alert{'s' if len(found) > 1 else ''} " if len(words) + 9 <= room else ""
    return Text(f"{words:>{max(len(words) + 1, room)}}", style=f"bold {palette.error if grave else palette.warning}")


def link_text(state: HostState, now: float, palette: Palette) -> Text:
    """The state of the link as a glyph, a word and a figure."""
    silent_s = state.silence_s(now)
    match state.link:
        case Up() if silent_s is not None and silent_s > STALE_S:
            return Text(f"◐ no word for {silent_s:.0f} s", style=palette.warning)
        case Up(latency_s=latency):
            return Text(f"● connected {latency * 1000:.0f} ms", style=palette.success)
        case Connecting() | Lost() if state.welcome is None:
            return _first_text(state.link, now, palette)
        case Connecting(attempt=attempt, since=since):
            age = format_duration(now - since)
            return Text(f"◌ link lost {age} ago, connecting again (attempt {attempt})", style=palette.error)
        case Lost(since=since, retry_at=retry_at):
            wait = max(0.0, retry_at - now)
            return Text(f"✗ link lost {format_duration(now - since)} ago, retry in {wait:.0f} s", style=palette.error)
        case Closed():
            return Text("✗ link closed", style=palette.error)


def _first_text(link: Connecting | Lost, now: float, palette: Palette) -> Text:
    """Of a host that was not reached yet."""
    age = format_duration(now - link.since)
    match link:
        case Connecting(attempt=attempt):
            which = f" (attempt {attempt})" if attempt > 1 else ""
            return Text(f"◌ connecting for {age}{which}", style=palette.accent)
        case Lost(retry_at=retry_at):
            return Text(f"✗ not reached for {age}, retry in {max(0.0, retry_at - now):.0f} s", style=palette.error)
