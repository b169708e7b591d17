"""Errors of the host side: one tree.

RoostError            carries the `ErrorInfo` that crosses the wire
├── UsageError        the spec or the arguments are wrong
├── NotFound          no such job, file or preset
├── Conflict          something else is there already, or the world changed since
├── Precondition      a check before the work failed: disk, mapping, model, engine
└── WorkFailed        the work itself failed
"""

from remote.protocol.errors import ErrorCode, ErrorInfo


class RoostError(Exception):
    """What happened, where, and what to do next."""

    code = ErrorCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None, next_command: str | None = None) -> None:
        super().__init__(message)
        self.info = ErrorInfo(code=self.code, message=message, hint=hint, next_command=next_command)


class UsageError(RoostError):
    """The spec or the arguments are wrong."""

    code = ErrorCode.USAGE


class NotFound(RoostError):
    """No such job, file or preset."""

    code = ErrorCode.NOT_FOUND


class Conflict(RoostError):
    """Something else is there already, or the world changed since the caller looked."""

    code = ErrorCode.CONFLICT


class Precondition(RoostError):
    """A check before the work failed."""

    code = ErrorCode.PRECONDITION


class WorkFailed(RoostError):
    """The work itself failed."""

    code = ErrorCode.FAILED
