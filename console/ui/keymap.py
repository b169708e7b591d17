"""Every action of the screen: its key, its name and what it does. The footer, the help and the palette read this table."""

from typing import NamedTuple

from textual.binding import Binding


class Action(NamedTuple):
    """`action` is the name of the app's method `action_<action>`; `label` is what the footer shows."""

    action: str
    key: str
    label: str
    help: str
    in_footer: bool = True


ACTIONS = (
    Action("run", "r", "Run", "Plan a run and start it after you have seen the plan"),
    Action("stop", "s", "Stop", "Stop the selected job; asks first"),
    Action("log", "l", "Log", "Show the selected job's log on the whole screen"),
    Action("verdict", "v", "Verdict", "Show the verdict of the newest run"),
    Action("diagnoses", "d", "Diagnoses", "Show what is wrong: since when, what shows it, what to do"),
    Action("gpus", "g", "GPUs", "Show everything that is known of each GPU"),
    Action("command", "c", "Command", "Show the exact command of the selected job", in_footer=False),
    Action("follow", "f", "Follow", "Go to the end of the log and follow it"),
    Action("theme", "t", "Theme", "Change between the dark and the light theme", in_footer=False),
    Action("help_panel", "question_mark", "Help", "Show the keys and what the screen means"),
    Action("leave", "q", "Quit", "Close the screen; jobs on the host go on"),
)


def key_name(action: Action) -> str:
    """The key as people know it."""
    return "?" if action.key == "question_mark" else action.key


def bindings() -> list[Binding]:
    """The table as Textual wants it; F1 helps as `?` does."""
    return [
        Binding(
            f"{action.key},f1" if action.action == "help_panel" else action.key,
            action.action,
            action.label,
            tooltip=action.help,
            id=action.action,
            show=action.in_footer,
            key_display=key_name(action),
        )
        for action in ACTIONS
    ]
