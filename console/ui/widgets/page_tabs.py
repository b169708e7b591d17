"""The pages in a line, the one that is open marked; a click opens another."""

from rich.text import Text
from textual.events import Click

from console.ui.keymap import PAGES
from console.ui.messages import PageWanted
from console.ui.widgets.lines import Lines
from console.ui.widgets.palette import Palette


class PageTabs(Lines):
    """All titles, shortened alike where they do not fit. `at_home`: on the overview."""

    def __init__(self, *, at_home: bool = False) -> None:
        super().__init__(classes="page-tabs -home" if at_home else "page-tabs", markup=False)
        self._ends: list[tuple[int, str]] = []
        self.starts: list[tuple[int, str]] = []
        """At which column each page's title begins."""

    def show(self, name: str, palette: Palette, *, columns: int) -> None:
        """Mark the page `name`; `columns` is the width of the screen."""
        letters = title_letters(columns)
        text = Text()
        self._ends = []
        self.starts = []
        for page in PAGES:
            is_open = page.name == name
            self.starts.append((text.cell_len, page.name))
            text.append("▸" if is_open else " ", style=palette.primary)
            words = f"{page.key} {page.title[:letters]}".rstrip()
            text.append(words, style=f"bold {palette.primary} underline" if is_open else palette.quiet)
            self._ends.append((text.cell_len, page.name))
        self.put(text)

    def on_click(self, event: Click) -> None:
        """The page under the pointer."""
        for end, name in self._ends:
            if event.x < end:
                self.open(name)
                return

    def open(self, name: str) -> None:
        """Tell that the page is wanted."""
        self.post_message(PageWanted(name))


def title_letters(columns: int) -> int:
    """How many letters of each title fit when all are cut at the same length."""
    longest = max(len(page.title) for page in PAGES)
    fits = (
        letters
        for letters in range(longest, 0, -1)
        if sum(len(page.key) + 2 + min(len(page.title), letters) for page in PAGES) <= columns
    )
    return next(fits, 0)
