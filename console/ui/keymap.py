"""Every action of the screen: its key, its name and what it does. The footer, the help and the palette read this table."""

import re
from typing import NamedTuple

from textual.binding import Binding


class Action(NamedTuple):
    """`action` is what Textual runs (`action_<action>` of the app); `label` is what the footer shows after `footer_key` or the key.

    `sign` is how the key is written where it stands for a pair of keys. `footer_label` takes the label's place in the footer where one entry stands for several keys.
    """

    action: str
    key: str
    label: str
    help: str
    in_footer: bool = True
    footer_key: str = ""
    footer_label: str = ""
    sign: str = ""

    @property
    def id(self) -> str:
        """What a keymap file calls it: `page('logs')` is `page_logs`."""
        return re.sub(r"\W+", "_", self.action).strip("_")


class PageKey(NamedTuple):
    """A page of the screen: what it is called in code and on the screen, its key, and what is on it."""

    name: str
    key: str
    title: str
    help: str


PAGES = (
    PageKey("overview", "1", "Overview", "Everything that matters, on one page"),
    PageKey("pipeline", "2", "Pipeline", "The newest run: its stages, their jobs, and what they made"),
    PageKey("logs", "3", "Logs", "The log of the job that is selected on the overview"),
    PageKey(
        "training", "4", "Training", "Loss, accuracy and rates as plots, checkpoints, and another training beside them"
    ),
    PageKey("vocabulary", "5", "Vocabulary", "The draft vocabulary and its mapping"),
    PageKey("storage", "6", "Storage", "What lies on the host's disks, and freeing them"),
    PageKey("server", "7", "Server", "The inference servers, and how fast they were measured"),
    PageKey("hosts", "8", "Hosts", "All configured hosts side by side; Enter shows another one"),
)

PAGE_ACTIONS = (
    Action("pages", "colon", "Pages", "Choose a page by its name", footer_key=f"{PAGES[0].key}-{PAGES[-1].key}"),
    *(Action(f"page('{page.name}')", page.key, page.title, page.help, in_footer=False) for page in PAGES),
)

ACTIONS = (
    Action("run", "r", "Run", "Plan a run and start it after you have seen the plan"),
    Action("stop", "s", "Stop", "Stop the selected job; asks first"),
    *PAGE_ACTIONS,
    Action("log", "l", "Log", "Show the selected job's log on the whole screen"),
    Action("verdict", "v", "Verdict", "Show the verdict of the newest run"),
    Action("diagnoses", "d", "Diagnoses", "Show what is wrong: since when, what shows it, what to do"),
    Action("gpus", "g", "GPUs", "Show everything that is known of each GPU"),
    Action("approvals", "a", "Approvals", "Show what agents asked for, to approve or refuse it", in_footer=False),
    Action("command", "c", "Command", "Show the exact command of the selected job", in_footer=False),
    Action("follow", "f", "Follow", "Go to the end of the log and follow it"),
    Action(
        "jump", "j", "Jump", "Put a letter on everything that can be gone to; the letter goes there", in_footer=False
    ),
    Action("theme", "t", "Theme", "Change to the next theme", in_footer=False),
    Action(
        "help_here", "f1", "Help here", "Explain what has the keyboard: what it shows, and its keys", in_footer=False
    ),
    Action("help_panel", "question_mark", "Help", "Show the keys and what the screen means"),
    Action("leave", "q", "Quit", "Close the screen; jobs on the host go on"),
)


OVERVIEW_ACTIONS = (
    Action(
        "next_layout",
        "z",
        "Layout",
        "Let jobs and log share the room, or one of them have it all; kept for the next time",
        in_footer=False,
    ),
)
"""What the overview has besides."""

LOG_ACTIONS = (
    Action("toggle_wrap", "w", "Wrap", "Let long lines go on below, or beyond the edge"),
    Action(
        "sideways(-1)",
        "left",
        "Sideways",
        "Half a width to the left or right while lines go on beyond the edge",
        in_footer=False,
        sign="← →",
    ),
    Action(
        "find", "slash", "Find", "Look for a text or a regular expression; with ! before it, leave out what matches"
    ),
    Action("step(1)", "n", "Matches", "Go to the next match, or with N to the one before", sign="n N"),
    Action("mark", "space", "Mark", "Mark lines with the keys that scroll; again, or Escape, marks nothing"),
    Action(
        "copy(False)",
        "y",
        "Copy",
        "Copy what the keys or the mouse have marked to the clipboard, or into a file if it cannot",
    ),
    Action("copy_to_file", "Y", "File", "Write what is marked into a file of your own", in_footer=False),
    Action("next_kind", "o", "Filter", "Show the lines with a match alone, those without one, or all again"),
)
"""What a log has besides on the whole screen and on its page; keys in pairs go by the first of them."""

VOCABULARY_ACTIONS = (
    Action("next_mapping", "n", "Next", "Show the next mapping that a job made, copied or measured"),
    Action("inspect_mapping", "i", "Path", "Inspect a mapping by its path, in any trainer's layout"),
    Action("measure_coverage", "m", "Measure", "Measure how much of given answers it covers; shows first what it does"),
    Action("copy_mapping", "y", "Copy", "Copy it on the host or to another one; shows first what lies there"),
)
"""What the page of the mappings has besides."""

PLOT_ACTIONS = (
    Action("cursor_left", "left", "Read", "Read the values a column further to the left", footer_key="← →"),
    Action("cursor_right", "right", "Right", "Read the values a column further to the right", in_footer=False),
    Action("zoom_in", "up", "Zoom", "See half as much of the axis, with the cursor in its place", footer_key="↑ ↓"),
    Action("zoom_out", "down", "Zoom out", "See twice as much of the axis", in_footer=False),
    Action("show_all", "0", "All", "See the whole axis, without a cursor"),
    Action("toggle_scale", "y", "Log", "Logarithmic or linear scales"),
    Action("toggle_axis", "x", "Axis", "Along the time or along the training's steps"),
    Action("next_alone", "z", "Enlarge", "Give one plot the whole room, then the next, then all again"),
)
"""What plots have besides."""

TRAINING_ACTIONS = (
    Action("choose_training", "n", "Training", "Show another training of this host"),
    Action("compare_training", "m", "Compare", "Draw another training dotted over this one, by steps; again for none"),
    Action("resume_training", "u", "Go on", "Go on with a training that ended early; shows first what that means"),
    Action(
        "export_drafter", "e", "Export", "Write the drafter of a checkpoint; shows first which, where and how large"
    ),
)
"""What the page of the trainings has besides."""

STORAGE_ACTIONS = (
    Action("reclaim", "m", "Reclaim", "Move the chosen entry, or what you name, into the trash; shows the plan first"),
    Action("restore", "u", "Undo", "Put the chosen entry of the trash back, or the newest; shows first what and where"),
    Action(
        "purge", "x", "Purge", "Delete the chosen entry of the trash, or all of it, for good; asks for the host's name"
    ),
)
"""What the page of the disks has besides."""

APPROVAL_ACTIONS = (
    Action("next_request", "n", "Next", "Choose the next request"),
    Action("approve", "p", "Approve", "Make the change that was asked for; shows it first"),
    Action("refuse", "x", "Refuse", "Tell whoever asked that it will not be done; asks first"),
)
"""What the inbox has besides."""

_CHANGING = ("run", "stop", "approvals")
"""What a replay has only to say that it cannot."""

_IN_ITS_FOOTER = ("pages", "log", "verdict", "diagnoses", "help_panel", "leave")

_HELP_IN_A_REPLAY = {"leave": "Close the replay"}

REPLAY_ACTIONS = (
    Action("pause", "space", "Pause", "Let the replay stand still, or go on"),
    Action("faster", "plus", "Pace", "Replay faster", footer_key="+-"),
    Action("slower", "minus", "Slower", "Replay more slowly", in_footer=False),
    Action("back", "comma", "Jump", "Go 30 seconds back", footer_key=",."),
    Action("forward", "full_stop", "Forward", "Go 30 seconds forward", in_footer=False),
    Action("leap_back", "less_than_sign", "Leap back", "Go 10 minutes back", in_footer=False),
    Action("leap_forward", "greater_than_sign", "Leap forward", "Go 10 minutes forward", in_footer=False),
    *(
        action._replace(
            in_footer=action.in_footer and action.id in _IN_ITS_FOOTER,
            help=_HELP_IN_A_REPLAY.get(action.action, action.help),
        )
        for action in ACTIONS
        if action.action not in _CHANGING
    ),
    *(
        action._replace(in_footer=False, help=f"{action.label} is for a host: a replay changes nothing")
        for action in ACTIONS
        if action.action in _CHANGING
    ),
)

_SIGNS = {
    "question_mark": "?",
    "plus": "+",
    "minus": "-",
    "comma": ",",
    "full_stop": ".",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "slash": "/",
    "colon": ":",
    "f1": "F1",
}


def key_name(action: Action) -> str:
    """The key as people know it."""
    return action.sign or _SIGNS.get(action.key, action.key)


def rebound(actions: tuple[Action, ...], keys: dict[str, str]) -> tuple[Action, ...]:
    """The table with a person's own keys, by the ids of their actions."""
    return tuple(
        action._replace(key=keys[action.id], sign="", footer_key="") if action.id in keys else action
        for action in actions
    )


def bindings(actions: tuple[Action, ...] = ACTIONS) -> list[Binding]:
    """The table as Textual wants it; what has the keyboard is explained in a dialog, too."""
    return [
        Binding(
            action.key,
            action.action,
            action.footer_label or action.label if action.in_footer else action.label,
            tooltip=action.help,
            id=action.id,
            show=action.in_footer,
            priority=action.action == "help_here",
            key_display=action.footer_key if action.in_footer and action.footer_key else key_name(action),
        )
        for action in actions
    ]
