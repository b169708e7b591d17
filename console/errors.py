"""Errors of the console: one tree.

ConsoleError            carries the `ErrorInfo` that a person or a script sees
├── UsageError          the request itself is wrong
├── ConnectionFailed    the host cannot be reached; `retryable` says whether trying again can help
├── ConfirmationNeeded  somebody must say yes first
└── HostError           the host refused or failed; the code is the host's
"""

from remote.protocol.errors import ErrorCode, ErrorInfo


class ConsoleError(Exception):
    """Something that a person must know; `info` has what, where and what to do next."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class UsageError(ConsoleError):
    """The arguments or the configuration are wrong."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(ErrorInfo(code=ErrorCode.USAGE, message=message, hint=hint))


class ConnectionFailed(ConsoleError):
    """The host cannot be reached or refused us."""

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = True) -> None:
        super().__init__(ErrorInfo(code=ErrorCode.CONNECTION, message=message, hint=hint, retryable=retryable))


class ConfirmationNeeded(ConsoleError):
    """A person or a flag must confirm; `next_command` does it."""

    def __init__(self, message: str, *, hint: str | None = None, next_command: str | None = None) -> None:
        super().__init__(ErrorInfo(code=ErrorCode.CONFIRMATION, message=message, hint=hint, next_command=next_command))


class HostError(ConsoleError):
    """The host's own answer to a request."""
