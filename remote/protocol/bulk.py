"""What an end of a bulk transfer tells the console that started it: JSON lines on its standard error."""

from remote.protocol.base import Message
from remote.protocol.errors import ErrorInfo


class BulkAdvanced(Message, frozen=True, kw_only=True):
    """How much of the artifact is at its destination; `bytes_done` counts what earlier attempts brought."""

    bytes_done: int
    bytes_total: int


class BulkDone(Message, frozen=True, kw_only=True):
    """The artifact lies whole at `path`; `bytes_moved` went over the line this time, none when it was there already."""

    path: str
    manifest_sha256: str
    files: int
    bytes_total: int
    bytes_moved: int


BulkStatus = BulkAdvanced | BulkDone | ErrorInfo
