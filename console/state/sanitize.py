"""The one sanitiser of text that a host sends: what is left can only be read, never obeyed by a terminal."""

import re

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x9b[0-?]*[ -/]*[@-~]?"  # CSI as one C1 character
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def sanitize(text: str) -> str:
    """`text` without escape sequences, control characters and bidirectional overrides; newlines and tabs stay.

    A carriage return is a progress bar's way to start its line again: it becomes a newline.
    """
    plain = _SEQUENCES.sub("", text)
    plain = plain.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", plain)


def one_line(text: str) -> str:
    """`text` made harmless and put on a single line, for names and reasons."""
    return " ".join(sanitize(text).split())
