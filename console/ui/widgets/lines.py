"""Lines of text that are rendered every second and seldom change."""

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static


class Lines(Static):
    """Draws only what is another text, and lays the screen out anew only where the number of lines may have changed.

    Textual lays out all widgets at every `Static.update`, and an idle screen updates several a second.
    """

    _text: Text | None = None

    def put(self, text: Text) -> None:
        """Show `text` from now on."""
        before = self._text
        if before is not None and text == before and text.style == before.style:
            return
        self._text = text
        self.update(text, layout=before is None or self._may_wrap(before, text) or _count(before) != _count(text))

    def _may_wrap(self, *texts: Text) -> bool:
        width = self.content_size.width
        return any(cell_len(line) > width for text in texts for line in text.plain.split("\n"))


def _count(text: Text) -> int:
    return text.plain.count("\n")
