"""JSON of a host, its texts made harmless before anything else sees them.

A regular expression over the line's bytes finds the few lines with something in them; the others cost nothing more.
"""

import re
from typing import Any, cast

import msgspec

from console.state.sanitize import sanitize

_SUSPICIOUS = re.compile(
    rb"\\[bfru]|\x7f|\xc2[\x80-\x9f\xad]|\xd8[\x80-\x85\x9c]|\xdb\x9d|\xdc\x8f|\xe0\xa2|\xe0\xa3\xa2|\xe1\xa0\x8e"
    rb"|\xe2(?:\x80[\x8b-\x8f\xa8-\xae]|\x81[\xa0-\xaf])|\xed[\xa0-\xbf]|\xef(?:\xbb\xbf|\xbf[\xb9-\xbb])"
    rb"|\xf0[\x91\x93\x9b\x9d]|\xf3\xa0"
)
"""Escapes of JSON that stand for controls, and the UTF-8 of every character that `sanitize` takes out."""


def sanitize_line(line: bytes) -> bytes:
    """A line of JSON with harmless texts; `?` for one that is none and has something in it."""
    if not _SUSPICIOUS.search(line):
        return line
    try:
        return msgspec.json.encode(sanitize_value(msgspec.json.decode(line)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b"?"


def sanitize_value(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """A decoded document with harmless texts and names."""
    match value:
        case str():
            return sanitize(value)
        case list():
            return [sanitize_value(item) for item in cast(list[Any], value)]
        case dict():
            return {sanitize(name): sanitize_value(item) for name, item in cast(dict[str, Any], value).items()}
        case _:
            return value
