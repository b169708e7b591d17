"""What widgets tell the app."""

from textual.message import Message


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


class AskWanted(Message):
    """The page that is open has something new to ask of the host."""


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
