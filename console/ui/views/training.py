"""A training in words: how it stands, its checkpoints, and the one that it is compared with."""

from rich.cells import cell_len
from rich.text import Text

from console.state.sanitize import one_line
from console.state.training_comparison import test_acceptance_of
from console.state.trainings import Checkpoint, ShownTraining, checkpoints_of, differences, standing_words
from console.state.units import format_bytes, format_duration
from console.ui.widgets.palette import Palette
from console.ui.words import job_mark

_MOST_DIFFERENCES = 3


def training_lines(
    shown: ShownTraining, other: ShownTraining | None, *, host_now: float, palette: Palette, width: int, rows: int
) -> Text:
    """The training, what it is compared with, and its newest checkpoints, each on one line of `width` cells, at most `rows` of them."""
    lines = [_heading("", shown, palette)]
    if other is not None:
        lines += [_heading("other ", other, palette), _differences(shown, other, palette)]
    checkpoints = checkpoints_of(shown)
    room = rows - len(lines)
    if not checkpoints:
        lines.append(Text("  no checkpoint yet", style=palette.quiet))
    elif room < 3 or len(checkpoints) == 1:
        lines.append(Text(f"  {_in_short(checkpoints)}", style=palette.foreground))
    else:
        lines += _table(checkpoints, host_now, palette, room)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _heading(label: str, training: ShownTraining, palette: Palette) -> Text:
    job = training.job
    mark = job_mark(job.state)
    text = Text(label, style=palette.quiet)
    text.append(one_line(job.job_id), style=f"bold {palette.primary}")
    text.append(f"  {mark.glyph} {mark.word}", style=palette[mark.color])
    text.append(f"  {standing_words(training)}", style=palette.foreground)
    tested = test_acceptance_of(job)
    if tested is not None:
        text.append(f"; {tested:.2f} tokens accepted on test text", style=palette.foreground)
    if len(training.jobs) > 1:
        text.append(f"; {len(training.jobs)} jobs worked on it", style=palette.quiet)
    return text


def _differences(shown: ShownTraining, other: ShownTraining, palette: Palette) -> Text:
    if shown.spec is None or other.spec is None:
        return Text("  what they were set to is not known", style=palette.quiet)
    found = differences(shown, other)
    words = [f"{name} {mine}, other {its}" for name, mine, its in found[:_MOST_DIFFERENCES]]
    more = len(found) - len(words)
    words += [f"{more} more: roost training compare"] if more else []
    return Text(f"  {'; '.join(words) or 'both were set to the same'}", style=palette.foreground)


def _in_short(checkpoints: list[Checkpoint]) -> str:
    last, best = checkpoints[0], next((each for each in checkpoints if each.is_best), None)
    words = [f"last checkpoint at step {last.step:,}"]
    if best is not None and best.measured is not None:
        words.append(f"best at step {best.step:,} with {best.measured.acceptance_length:.2f} on validation text")
    kept = sum(each.is_kept is not False for each in checkpoints)
    return ", ".join([*words, f"{kept} of {len(checkpoints)} kept"])


def _table(checkpoints: list[Checkpoint], host_now: float, palette: Palette, rows: int) -> list[Text]:
    shown = checkpoints[: rows - 1]
    best = next((each for each in checkpoints if each.is_best), None)
    if best is not None and best not in shown:
        shown[-1] = best
    cells = [("checkpoint", "validation text", "age", "size", "")]
    cells += [
        (
            f"step {each.step:,}",
            "not measured" if each.measured is None else f"{each.measured.acceptance_length:.2f} accepted",
            format_duration(max(0.0, host_now - each.at)),
            format_bytes(each.bytes),
            _marks(each),
        )
        for each in shown
    ]
    hidden = len(checkpoints) - len(shown)
    widths = [max(cell_len(row[column]) for row in cells) for column in range(4)]
    found: list[Text] = []
    for number, row in enumerate(cells):
        words = "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + f"  {row[4]}"
        words += f"{hidden} more are not shown" if not number and hidden else ""
        is_quiet = not number or shown[number - 1].is_kept is False
        found.append(Text(words.rstrip(), style=palette.quiet if is_quiet else palette.foreground))
    return found


def _marks(checkpoint: Checkpoint) -> str:
    kept = {True: "kept", False: "removed", None: ""}[checkpoint.is_kept]
    best, last = "★ best" if checkpoint.is_best else "", "last" if checkpoint.is_last else ""
    return ", ".join(word for word in (best, last, kept) if word)
