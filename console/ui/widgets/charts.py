"""One line of curves: loss, accuracy of the first draft token, decode rate, and what the arms of the evaluation reach."""

from rich.text import Text
from textual.widgets import Static

from console.state.host import Curves, HostState
from console.state.series import shrink, sparkline
from console.ui.widgets.palette import Palette

_NARROW = 16
_WIDE = 32
_WIDE_FROM = 130


class Charts(Static):
    """Sparklines with their last value."""

    def show(self, state: HostState, palette: Palette) -> None:
        """Render the newest run's curves."""
        width = _WIDE if self.size.width >= _WIDE_FROM else _NARROW
        text = Text(no_wrap=True, overflow="ellipsis")
        curves = state.training_curves()
        if curves is not None and curves.last is not None:
            text.append_text(_training(curves, width, palette))
        if state.decode_history.last is not None:
            text.append("  decode ", style=palette.quiet)
            text.append(sparkline(shrink(state.decode_history.tail(120), width), low=0.0), style=palette.accent)
            text.append(f" {state.decode_history.last:.1f} tok/s", style=palette.foreground)
        for arm in _arms(state):
            text.append(f"  {arm}", style=palette.foreground)
        if not text.plain:
            text.append("loss, accuracy and rates appear here while a run trains and serves", style=palette.quiet)
        self.update(text)


def _training(curves: Curves, width: int, palette: Palette) -> Text:
    text = Text("loss ", style=palette.quiet)
    text.append(sparkline(curves.loss.shrink(width)), style=palette.accent)
    text.append(f" {curves.loss.last:.2f}", style=palette.foreground)
    if curves.accuracy.last is not None:
        text.append("  first draft token ", style=palette.quiet)
        text.append(sparkline(curves.accuracy.shrink(width), low=0.0), style=palette.success)
        text.append(f" {curves.accuracy.last:.0%}", style=palette.foreground)
    return text


def _arms(state: HostState) -> list[str]:
    found: list[str] = []
    for arm in state.arms.values():
        if arm.decode_tokens_per_s is None:
            continue
        length = "" if arm.acceptance_length is None else f", acceptance {arm.acceptance_length:.2f}"
        words = "with drafter" if arm.arm == "drafter" else "without"
        found.append(f"{words} {arm.decode_tokens_per_s:.1f} tok/s{length}")
    return found[-2:]
