"""Where the words of a host come in: all that is no log is made harmless here, before anything else sees it.

A regular expression over the line's bytes finds the few lines with something in them; the others cost nothing more.
"""

import re
from typing import Any

import msgspec

from console.state.sanitize import sanitize
from remote.protocol.codec import MAX_LINE_BYTES, ProtocolError, decode_host_frame
from remote.protocol.frames import HostFrame

_SUSPICIOUS = re.compile(
    rb"\\[bfru]|\x7f|\xc2[\x80-\x9f\xad]|\xd8[\x80-\x85\x9c]|\xdb\x9d|\xdc\x8f|\xe0\xa2|\xe0\xa3\xa2|\xe1\xa0\x8e"
    rb"|\xe2(?:\x80[\x8b-\x8f\xa8-\xae]|\x81[\xa0-\xaf])|\xed[\xa0-\xbf]|\xef(?:\xbb\xbf|\xbf[\xb9-\xbb])"
    rb"|\xf0[\x91\x93\x9b\x9d]|\xf3\xa0"
)
"""Escapes of JSON that stand for controls, and the UTF-8 of every character that `sanitize` takes out."""


def receive_frame(line: bytes) -> HostFrame:
    """The host's frame on a line, its texts made harmless; raises ProtocolError."""
    if len(line) <= MAX_LINE_BYTES and _SUSPICIOUS.search(line):
        line = _clean_line(line)
    try:
        return decode_host_frame(line)
    except RecursionError as error:
        raise ProtocolError("a host frame that is nested too deeply") from error


def receive_document(data: bytes) -> dict[str, Any]:
    """A JSON object that came outside of the protocol, its texts made harmless; empty when it is none."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return _clean(document) if isinstance(document, dict) else {}


def _clean_line(line: bytes) -> bytes:
    try:
        return msgspec.json.encode(_clean(msgspec.json.decode(line)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b"?"


def _clean(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    match value:
        case str():
            return sanitize(value)
        case list():
            return [_clean(item) for item in value]
        case dict():
            return {sanitize(name): _clean(item) for name, item in value.items()}
        case _:
            return value
