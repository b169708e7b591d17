"""What lies on the host's disks, the largest first, and the trash; freeing needs a plan and a yes."""

import shlex
from collections import Counter
from pathlib import PurePosixPath

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import DataTable, Static

from console.state.disk_shares import bytes_elsewhere
from console.state.moments import format_moment
from console.state.sanitize import one_line
from console.state.units import format_bytes
from console.ui.keymap import STORAGE_ACTIONS, bindings
from console.ui.messages import AskWanted
from console.ui.pages.page import Page
from console.ui.screens.dialogs import AskLine, Confirm, ConfirmByName, command_line, intent_body
from console.ui.session import HostSession
from console.ui.views.extraction import mount_words
from console.ui.views.rows import labelled_rows
from console.ui.widgets.glance import Glance
from console.ui.widgets.palette import Palette
from remote.protocol.storage import ReclaimPlan, StorageEntry, StorageReport, TrashEntry

_SIZE, _FILES, _KIND = 10, 9, 12
_ROW_PADDING = 8
_MOST_PATH = 24


class StoragePage(Page):
    """A row a directory, then a row for each entry of the trash."""

    NAME = "storage"
    BINDINGS = bindings(STORAGE_ACTIONS)
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
        elsewhere = {} if self._report is None else bytes_elsewhere(self._report)
        rows = [
            (mount.path, f"{mount_words(mount, jobs)}{_elsewhere_words(elsewhere.get(mount.path))}") for mount in mounts
        ]
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
                words = "m moves it into the trash, from where u brings it back until x has deleted it"
                return Text(words, style=palette.foreground)
            case TrashEntry(origin=origin, trashed_by=who):
                words = (
                    f"in the trash, from {one_line(origin)}, by {one_line(who)}: u puts it back, x deletes it for good"
                )
                return Text(words, style=palette.foreground)
            case _:
                return Text("nothing lies here yet", style=palette.quiet)

    def action_reclaim(self) -> None:
        """Into the trash."""
        self.run_operation(self._reclaim())

    def action_restore(self) -> None:
        """Out of the trash."""
        self.run_operation(self._restore())

    def action_purge(self) -> None:
        """Gone."""
        self.run_operation(self._purge())

    async def _reclaim(self) -> None:
        session, chosen = self.session, self.chosen()
        if session is None or self._report is None:
            self.notify("The host has not said yet what lies there.")
            return
        question = AskLine(
            "Reclaim",
            "What shall go into the trash? A run (runs/NAME), a part of one, a job; several with spaces between:",
            shlex.quote(chosen.path) if isinstance(chosen, StorageEntry) and chosen.kept_because is None else "",
            then="Enter shows the plan and changes nothing.",
        )
        answer = await self.app.push_screen_wait(question)
        paths = [] if answer is None else _words_of(answer)
        if not paths:
            return
        plan = await session.plan_reclaim(paths)
        if plan.problems:
            self.notify("; ".join(plan.problems), title="Nothing was moved", severity="warning", markup=False)
            return
        command = command_line(self.host_name, "storage", "reclaim", *plan.paths, "--plan", plan.token)
        body = intent_body(self.host_name, _plan_rows(plan, self._report), command)
        if await self.app.push_screen_wait(
            Confirm(f"Reclaim on {self.host_name}?", body, yes="Move it into the trash")
        ):
            await session.reclaim(plan)
            self.notify("It is in the trash: u puts it back, x deletes it and frees the disk.", timeout=8)
            self.post_message(AskWanted())

    async def _restore(self) -> None:
        chosen = self.chosen()
        entry = chosen if isinstance(chosen, TrashEntry) else next(iter(self._trash()), None)
        if self.session is None or entry is None:
            self.notify("The trash is empty: there is nothing to put back.")
            return
        rows = [
            ("puts back", entry.origin),
            ("size", f"{format_bytes(entry.bytes)} in {entry.files:,} files"),
            ("trashed", f"{format_moment(entry.trashed_at)} by {entry.trashed_by}"),
            ("there", "nothing is replaced: it is refused if something lies there again"),
        ]
        body = intent_body(self.host_name, rows, command_line(self.host_name, "storage", "restore", entry.name))
        if await self.app.push_screen_wait(Confirm("Put it back?", body, yes="Put it back")):
            await self.session.restore_from_trash(entry.name)
            self.notify(f"{entry.origin} is back.", markup=False)
            self.post_message(AskWanted())

    async def _purge(self) -> None:
        chosen = self.chosen()
        entries = [chosen] if isinstance(chosen, TrashEntry) else self._trash()
        if self.session is None or not entries:
            self.notify("The trash is empty: there is nothing to delete for good.")
            return
        size, files = sum(entry.bytes for entry in entries), sum(entry.files for entry in entries)
        rows = [
            ("deletes", "\n".join(entry.origin for entry in entries)),
            ("frees", f"{format_bytes(size)} in {files:,} files"),
            ("then", "it is gone for good; nothing brings it back"),
        ]
        names = [entry.name for entry in entries]
        command = command_line(self.host_name, "storage", "purge", *names, "--confirm", self.host_name)
        body = intent_body(self.host_name, rows, command)
        question = ConfirmByName("Delete for good?", body, self.host_name, then="delete it for good")
        if await self.app.push_screen_wait(question):
            job = await self.session.start_purge(entries)
            self.notify(f"Started {job.job_id}; the disk's figures follow.", markup=False)
            self.post_message(AskWanted())

    def _trash(self) -> list[TrashEntry]:
        """The newest first."""
        return [] if self._report is None else self._report.trash


def _words_of(answer: str) -> list[str]:
    """Paths as a shell reads them; one whose quotes do not close is taken as it is."""
    try:
        return shlex.split(answer)
    except ValueError:
        return [answer]


def _elsewhere_words(size: int | None) -> str:
    return "" if not size else f"; {format_bytes(size)} of that not in this list"


def _plan_rows(plan: ReclaimPlan, report: StorageReport) -> list[tuple[str, str]]:
    """What goes, of which kinds, and what stays with its reason."""
    kept = {item.path for item in plan.kept}
    kinds: Counter[str] = Counter()
    for entry in report.entries:
        if entry.path not in kept and any(PurePosixPath(entry.path).is_relative_to(path) for path in plan.paths):
            kinds[entry.kind] += entry.bytes
    by_kind = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in kinds.most_common())
    return [
        ("moves", "\n".join(plan.paths)),
        ("frees", f"{format_bytes(plan.bytes)} in {plan.files:,} files, once it is purged from the trash"),
        *([("of these", by_kind)] if by_kind else []),
        *(("stays", f"{item.path}: {item.reason}") for item in plan.kept),
        ("good until", f"{format_moment(plan.expires_at)}; refused if anything there changes before"),
    ]


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
