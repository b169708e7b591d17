"""The eight stages of the newest run, and the one that is at work."""

from rich.text import Text

from console.config.hosts import RESERVED
from console.state.host import HostState
from console.state.sanitize import one_line
from console.state.units import format_duration, format_percent
from console.ui.messages import ActionWanted
from console.ui.widgets.lines import Lines
from console.ui.widgets.palette import Palette
from console.ui.words import VERDICT_COLORS, VERDICT_GLYPHS, stage_mark
from remote.protocol.jobs import Job
from remote.protocol.progress import StageFailed, StageName, StageRunning, StageState

_BAR_WIDTH = 16
_SHORT = {"extraction": "extract", "vocabulary": "vocab", "training": "train", "evaluation": "eval"}
_WIDE = 110
_ROOMY = 140


class StageStrip(Lines):
    """Two lines: the strip, and the running or failed stage in detail; on a `low` screen the second alone."""

    def on_click(self) -> None:
        """The run in full."""
        self.post_message(ActionWanted("page('pipeline')"))

    def show(self, state: HostState, host_now: float, palette: Palette, *, in_replay: bool, low: bool) -> None:
        """Render the newest run; while there is none, what starts one, which nothing does in a replay."""
        run = state.newest_run()
        if run is None:
            self.put(Text(_no_run(state, in_replay=in_replay), style=palette.quiet))
            return
        stages = state.stages_of(run.job_id)
        wide = self.size.width >= _WIDE
        detail = _verdict(run, palette) or _detail(stages, host_now, palette, roomy=self.size.width >= _ROOMY)
        if low and detail.plain:
            self.put(detail)
            return
        text = Text()
        for position, (stage, stage_state) in enumerate(stages):
            mark = stage_mark(stage_state)
            name = stage if wide else _SHORT.get(stage, stage)
            text.append("" if position == 0 else " › " if wide else " ", style=palette.quiet)
            text.append(f"{mark.glyph} {name}", style=palette[mark.color])
        text.append("\n")
        text.append_text(detail)
        self.put(text)


def _no_run(state: HostState, *, in_replay: bool) -> str:
    if in_replay:
        return "no run of all stages at this moment of the recording"
    if not state.jobs_known:
        return "asking the host for its jobs"
    if state.name == RESERVED:
        return "no run yet: press r to run the embedded preset"
    return "no run yet: press r to plan one from a preset or a run file"


def _verdict(run: Job, palette: Palette) -> Text | None:
    """The verdict of a run that reached one, in a line."""
    summary = run.result.summary if run.result is not None else {}
    decision, speedup, length = (summary.get(key) for key in ("decision", "speedup", "acceptance_length"))
    rates = [summary.get(key) for key in ("baseline_tokens_per_s", "drafter_tokens_per_s")]
    if decision not in VERDICT_GLYPHS or not all(isinstance(value, float) for value in (speedup, length, *rates)):
        return None
    text = Text()
    text.append(f"{VERDICT_GLYPHS[decision]} {decision} ", style=f"bold {palette[VERDICT_COLORS[decision]]}")
    text.append(
        f" {rates[0]:.1f} tok/s without the drafter, {rates[1]:.1f} with it: {speedup:.2f}x", style=palette.foreground
    )
    text.append(f"  acceptance length {length:.2f}  (v: why)", style=palette.quiet)
    return text


def _detail(stages: list[tuple[StageName, StageState]], host_now: float, palette: Palette, *, roomy: bool) -> Text:
    for stage, state in stages:
        match state:
            case StageRunning(since=since, fraction=fraction, eta_s=eta, detail=detail):
                text = Text()
                text.append(f"{stage} ", style=f"bold {palette.accent}")
                if fraction is not None:
                    filled = round(fraction * _BAR_WIDTH)
                    text.append("█" * filled, style=palette.accent)
                    text.append("░" * (_BAR_WIDTH - filled), style=palette["bar-empty"])
                    text.append(f" {format_percent(fraction)}", style=palette.foreground)
                if roomy:
                    text.append(f"  {format_duration(max(0.0, host_now - since))} so far", style=palette.quiet)
                if eta is not None:
                    text.append(f"  {format_duration(eta)} left", style=palette.foreground)
                text.append(f"  {one_line(detail)}" if detail else "", style=palette.foreground)
                return text
            case StageFailed(reason=reason):
                return Text(f"{stage} failed: {one_line(reason) or 'no reason given'}", style=palette.error)
            case _:
                pass
    return Text("")
