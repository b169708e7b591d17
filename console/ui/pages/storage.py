"""What lies on the host's disks, the largest first, and the trash; freeing needs a plan and a yes."""

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import DataTable, Static

from console.state.sanitize import one_line
from console.state.units import format_bytes
from console.ui.pages.page import Page
from console.ui.session import HostSession
from console.ui.views.extraction import mount_words
from console.ui.views.rows import labelled_rows
from console.ui.widgets.glance import Glance
from console.ui.widgets.palette import Palette
from remote.protocol.storage import StorageEntry, StorageReport, TrashEntry

_SIZE, _FILES, _KIND = 10, 9, 12
_ROW_PADDING = 8
_MOST_PATH = 24


class StoragePage(Page):
    """A row a directory, then a row for each entry of the trash."""

    NAME = "storage"
    asks_every_s = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._report: StorageReport | None = None
        self._drawn: tuple[StorageReport | None, int, str] | None = None

    def content(self) -> ComposeResult:
        """Where the rows are, under a line that says what can be done."""
        yield Static(id="disks", markup=False)
        yield Static(classes="page-line", markup=False)
        yield DataTable(id="storage", cursor_type="row", cursor_foreground_priority="renderable")

    def on_mount(self) -> None:
        """The arrow keys choose."""
        self.query_one(DataTable).focus()

    async def ask(self, session: HostSession) -> None:
        """What lies where."""
        self._report = await session.read_storage()

    def chosen(self) -> StorageEntry | TrashEntry | None:
        """What the cursor is on."""
        if self._report is None:
            return None
        rows = [*self._report.entries, *self._report.trash]
        at = self.query_one(DataTable).cursor_row
        return rows[at] if 0 <= at < len(rows) else None

    def show_content(self, glance: Glance) -> None:
        """The rows, and in the line above them what the one under the cursor is."""
        self.query_one("#disks", Static).update(self._disks(glance))
        self.query_one(".page-line", Static).update(self._words(glance.palette))
        table = self.query_one(DataTable)
        width = table.size.width or 80
        drawn = (self._report, width, self.app.theme)
        if drawn == self._drawn or self._report is None:
            return
        self._drawn = drawn
        at = table.cursor_row
        table.clear(columns=True)
        room = max(20, width - _SIZE - _FILES - _KIND - _ROW_PADDING - 2)
        for label, columns in (("size", _SIZE), ("files", _FILES), ("kind", _KIND), ("path", room)):
            table.add_column(label, width=columns)
        for row in [*self._report.entries, *self._report.trash]:
            table.add_row(*_cells(row, self._report.root, glance.palette, room))
        table.move_cursor(row=at)

    def _disks(self, glance: Glance) -> RenderableType:
        """Every disk of the newest reading, before the first one those that the host named when it was asked."""
        sample = glance.state.sample
        mounts = sample.mounts if sample is not None else self._report.mounts if self._report is not None else []
        jobs = sample.jobs if sample is not None else []
        rows = [(mount.path, mount_words(mount, jobs)) for mount in mounts]
        longest = max((len(path) for path, _ in rows), default=1)
        return labelled_rows(rows, glance.palette, min(_MOST_PATH, longest))

    def _words(self, palette: Palette) -> Text:
        if self.failed:
            return Text(f"✗ {self.failed}", style=palette.error)
        if self._report is None:
            return Text("the host looks at its directories", style=palette.quiet)
        match self.chosen():
            case StorageEntry(kept_because=str() as why, used_by=users):
                by = f" by {', '.join(users)}" if users else ""
                return Text(f"stays: {one_line(why)}{by}", style=palette.foreground)
            case StorageEntry():
                return Text("can go into the trash, from where it can come back", style=palette.foreground)
            case TrashEntry(origin=origin, trashed_by=who):
                return Text(f"in the trash, from {one_line(origin)}, by {one_line(who)}", style=palette.foreground)
            case _:
                return Text("nothing lies here yet", style=palette.quiet)


def _cells(row: StorageEntry | TrashEntry, root: str, palette: Palette, room: int) -> list[Text]:
    in_trash = isinstance(row, TrashEntry)
    stays = not in_trash and row.kept_because is not None
    kind = "♻ trash" if in_trash else row.kind
    place = (row.origin if in_trash else row.path).removeprefix(f"{root.rstrip('/')}/")
    path = f"{'· ' if stays else '  '}{one_line(place)}"
    if len(path) > room:
        path = f"…{path[-room + 1 :]}"
    color = palette.quiet if stays or in_trash else palette.foreground
    size = Text(format_bytes(row.bytes), style=palette.foreground, justify="right")
    return [
        size,
        Text(f"{row.files:,}", style=palette.quiet, justify="right"),
        Text(kind, style=color),
        Text(path, style=color),
    ]
