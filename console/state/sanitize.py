"""The one sanitiser of text that a host sends: what is left can only be read, never obeyed by a terminal.

Colours (SGR: `ESC [ digits m`) stay in logs and nowhere else. All of it is one pass over the text, so that what is taken
out can never make its neighbours into a sequence.
"""

import json
import re

_SGR = r"\x1b\[[0-9;:]{0,64}m"
_STRING_END = r"[^\x07\x1b\x9c\n\r]*(?:\x07|\x1b\\|\x9c)?"
_CONTROL = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # C0 and C1
    r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f"  # bidirectional controls and all else that has no shape of its own
    r"\ud800-\udfff]"  # halves of characters
)
_OBEYED = re.compile(
    r"(?P<line>\r\n?)"
    rf"|(?P<sgr>{_SGR})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x9b[0-?]*[ -/]*[@-~]?"  # CSI as one C1 character
    rf"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_STRING_END}"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes
    rf"|{_CONTROL}"
)
_COLORS = re.compile(_SGR)
_CONTROLS = re.compile(_CONTROL)


def sanitize(text: str) -> str:
    """`text` without escape sequences, control characters and bidirectional overrides; newlines and tabs stay.

    A carriage return is a progress bar's way to start its line again: it becomes a newline.
    """
    return _OBEYED.sub(lambda found: "\n" if found["line"] else "", text)


def sanitize_log(text: str) -> str:
    """As `sanitize`, with the colours (SGR) left in."""
    return _OBEYED.sub(lambda found: "\n" if found["line"] else found["sgr"] or "", text)


def without_colors(text: str) -> str:
    """A sanitised text without its colours."""
    return _COLORS.sub("", text)


def one_line(text: str) -> str:
    """`text` made harmless and put on a single line, for names and reasons."""
    return " ".join(sanitize(text).split())


def escape_controls(document: str) -> str:
    """A JSON text with what a terminal would obey, or hide, written as JSON's escapes: the same values, harmless to look at."""
    return _CONTROLS.sub(lambda found: json.dumps(found[0])[1:-1], document)
