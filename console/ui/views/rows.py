"""Rows of a label and a text; what is too long goes on below itself."""

from rich.table import Table
from rich.text import Text

from console.state.sanitize import sanitize
from console.ui.widgets.palette import Palette

_LABEL_WIDTH = 9


def labelled_rows(rows: list[tuple[str, str]], palette: Palette, label_width: int = _LABEL_WIDTH) -> Table:
    """The rows, indented, with quiet labels; texts are made harmless."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=label_width, no_wrap=True, style=palette.quiet)
    table.add_column(style=palette.foreground)
    for label, words in rows:
        table.add_row("", Text(label), Text(sanitize(words)))
    return table
