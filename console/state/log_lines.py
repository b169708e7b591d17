"""What a line of a log is: how grave, and what the progress lines of our own jobs say in words; pure.

A line is sanitised and may have colours (SGR) in it.
"""

import re
from typing import Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec.structs import fields

from console.state.progress_words import progress_words
from console.state.sanitize import without_colors
from remote.protocol.progress import Progress

Level = Literal["debug", "info", "warning", "error"]
"""How grave a line is."""

_HEAD = 200
"""Characters of a line within which its level stands."""

_NAMES: dict[str, Level] = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "success": "info",
    "warn": "warning",
    "warning": "warning",
    "err": "error",
    "error": "error",
    "critical": "error",
    "crit": "error",
    "fatal": "error",
    "panic": "error",
}
_LETTERS: dict[str, Level] = {"I": "info", "W": "warning", "E": "error", "F": "error"}

_ANY_CASE = "|".join(sorted(_NAMES, key=len, reverse=True))
_CAPITALS = re.compile(r"[A-Z]{3,8}")
_PART_OF_MORE = re.compile(r"[\w./<>-]")
_NAMED = re.compile(rf"\b(?:level|levelname|severity)\W{{1,4}}(?P<level>{_ANY_CASE})\b", re.IGNORECASE)
_GLOG = re.compile(r"(?:\[\w+\]:)?\[?(?P<letter>[IWEF])\d{4} \d\d:\d\d:\d\d")
_FIRST = re.compile(rf"(?:\d[\d:.,TZ-]* +)?(?P<level>{_ANY_CASE}): ")
_WARNED = re.compile(r"\b[A-Z]\w*Warning: ")
_RAISED = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
_TRACE = "Traceback (most recent call last):"


def level_of(text: str) -> Level | None:
    """How grave a line without colours says it is; None where it does not say.

    Known are a word in capitals (Python's logging, SGLang, vLLM, uvicorn, NCCL), `level=…` in any notation, a first word with a
    colon, glog's letters (PyTorch's C++), and what Python prints of warnings and exceptions.
    """
    head = text[:_HEAD]
    if (found := _GLOG.match(head)) is not None:
        return _LETTERS[found["letter"]]
    # Every line comes through here, a thousand a second: one pass over plain characters, then what few lines have.
    for word in _CAPITALS.finditer(head):
        level = _NAMES.get(word[0].lower())
        if level is not None and not _is_part_of_more(head, word.start(), word.end()):
            return level
    found = _FIRST.match(head)
    if found is None and ("evel" in head or "everity" in head):
        found = _NAMED.search(head)
    if found is not None:
        return _NAMES[found["level"].lower()]
    if "Warning: " in head and _WARNED.search(head):
        return "warning"
    return "error" if _TRACE in head or _RAISED.match(head) else None


def _is_part_of_more(text: str, start: int, end: int) -> bool:
    """Whether a word is a piece of a path, an option or a longer word."""
    around = text[max(0, start - 1) : start], text[end : end + 1]
    return any(_PART_OF_MORE.match(each) for each in around)


class LogLine(NamedTuple):
    """A line as it is shown, with its colours; `source` counts the logs that are shown together, from 0."""

    text: str
    level: Level | None = None
    source: int = 0


def log_line(text: str, source: int = 0) -> LogLine:
    """What to show of a line that a job wrote."""
    text = readable(text)
    return LogLine(text, level_of(without_colors(text) if "\x1b" in text else text), source)


_OURS = re.compile(r"(?:\d{4}-\d\d-\d\dT)?(?P<time>\d\d:\d\d:\d\d)Z? (?P<rest>(?P<name>[a-z_]+).*)\Z")
_DATED_OURS = re.compile(r"\d{4}-\d\d-\d\dT(?P<time>\d\d:\d\d:\d\d)Z (?P<rest>.*)\Z")


def readable(line: str) -> str:
    """A progress line that one of our jobs wrote (`arm_advanced arm=baseline …`) as a sentence, and any other as it is.

    Of the dates that our jobs write the time of day is left.
    """
    if not line[:1].isdigit():
        return line
    ours = _OURS.match(line)
    kind = None if ours is None else _KINDS.get(ours["name"])
    if ours is not None and kind is not None:
        event = _event(kind, ours["rest"])
        if event is not None:
            return f"{ours['time']} {progress_words(event)}"
    dated = _DATED_OURS.match(line)
    return line if dated is None else f"{dated['time']} {dated['rest']}"


_KINDS: dict[str, type[Progress]] = {kind.__struct_config__.tag: kind for kind in get_args(Progress)}
"""The events by the name that their line begins with."""

_KEYS = {kind: re.compile(rf" ({'|'.join(kind.__struct_fields__)})=") for kind in _KINDS.values()}
_LISTS = {
    kind: {field.name: get_args(field.type)[0] for field in fields(kind) if get_origin(field.type) is list}
    for kind in _KINDS.values()
}
"""Of each event the fields that are lists, with what is in them."""

_UNKNOWN = {
    kind: [field.name for field in fields(kind) if field.required and type(None) in get_args(field.type)]
    for kind in _KINDS.values()
}
"""Of each event the fields that it must have and that are None while unknown; a line leaves those out."""


def _event(kind: type[Progress], text: str) -> Progress | None:
    """The event that `name key=value …` was written of, where all that it must have can be read.

    Values may have blanks and what looks like a key; the real ones come in the order of the fields. Lists of structs are left out:
    no sentence needs them.
    """
    order = kind.__struct_fields__
    keys: list[re.Match[str]] = []
    for found in _KEYS[kind].finditer(text):
        if not keys or order.index(found[1]) > order.index(keys[-1][1]):
            keys.append(found)
    ends = [*(found.start() for found in keys), len(text)][1:]
    values: dict[str, object] = {"type": kind.__struct_config__.tag, **dict.fromkeys(_UNKNOWN[kind])}
    for found, end in zip(keys, ends, strict=True):
        value, of = text[found.end() : end], _LISTS[kind].get(found[1])
        if of is None:
            values[found[1]] = value
        elif not issubclass(of, msgspec.Struct):
            values[found[1]] = [piece for piece in value.split(",") if piece]
    try:
        return msgspec.convert(values, type=kind, strict=False)
    except msgspec.ValidationError:
        return None
