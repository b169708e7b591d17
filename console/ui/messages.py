"""What widgets tell the app."""

from textual.message import Message

from console.config.screen_memory import FilterKind


class JobSelected(Message):
    """The cursor of the jobs table is on another job."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id


class JobOpened(Message):
    """Enter or a click on a job: its log is wanted on the whole screen."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id


class AlertsOpened(Message):
    """Enter or a click on the line of alerts: what is wrong is wanted in full."""


class LogMoved(Message):
    """A view of a log shows another part of it, or shows it differently."""


class LogViewWanted(Message):
    """A log is wanted with long lines broken or not, and with something else done to what matches; it is so on every log, and remembered."""

    def __init__(self, *, wraps: bool, kind: FilterKind) -> None:
        super().__init__()
        self.wraps = wraps
        self.kind: FilterKind = kind


class CopyWanted(Message):
    """Lines of a log are to be copied: to the clipboard, or into a file whose name begins with `name`."""

    def __init__(self, lines: list[str], name: str, *, to_file: bool) -> None:
        super().__init__()
        self.lines = lines
        self.name = name
        self.to_file = to_file


class AskWanted(Message):
    """The page that is open has something new to ask of the host."""


class HostWanted(Message):
    """A host is to be shown in place of the one that the screen shows, by its name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class PageWanted(Message):
    """A page is wanted by its name in `keymap.PAGES`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class ActionWanted(Message):
    """A click on something stands for a key: its action by the name that Textual runs."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.action = action


class LayoutChosen(Message):
    """The overview is laid out in another way."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout = layout
