"""Where the words of a host come in: all that is no log is made harmless here, before anything else sees it."""

from typing import Any

import msgspec

from console.state.sanitize_json import sanitize_line, sanitize_value
from remote.protocol.codec import MAX_LINE_BYTES, ProtocolError, decode_host_frame
from remote.protocol.frames import HostFrame


def receive_frame(line: bytes) -> HostFrame:
    """The host's frame on a line, its texts made harmless; raises ProtocolError."""
    if len(line) <= MAX_LINE_BYTES:
        line = sanitize_line(line)
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
    return sanitize_value(document) if isinstance(document, dict) else {}
