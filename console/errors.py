"""Errors of the console: one tree.

ConsoleError            carries the `ErrorInfo` that a person or a script sees
├── UsageError          the request itself is wrong
├── ConnectionFailed    the host cannot be reached; `retryable` says whether trying again can help
├── ConfirmationNeeded  somebody must say yes first
│   ├── ApprovalAwaited … which waits in the host's inbox
│   └── UnknownHostKey  … to a host's key, which is shown
└── HostError           the host refused or failed; the code is the host's
"""

import re

from msgspec import structs

from console.state.sanitize import sanitize
from remote.protocol.errors import ErrorCode, ErrorInfo

_DEFAULT_HOST = "embedded"
_WITHOUT_HOST = ("hosts", "embedded", "demo", "replay", "spec")
"""Verbs that name their host otherwise, or have none."""
_OWN = re.compile(r"roost(?: [\w./:=@+-]+)*\Z")


class ConsoleError(Exception):
    """Something that a person must know; `info` has what, where and what to do next.

    Its texts are made harmless: they may hold what a host, its SSH server or a program there has said.
    """

    def __init__(self, info: ErrorInfo) -> None:
        texts = {"message": info.message, "hint": info.hint, "next_command": info.next_command}
        self.info = structs.replace(info, **{name: text and sanitize(text) for name, text in texts.items()})
        super().__init__(self.info.message)

    def name_host(self, name: str) -> None:
        """Make the next command one that reaches the same host."""
        command = self.info.next_command
        if name == _DEFAULT_HOST or command is None or "--host" in command or not _OWN.match(command):
            return
        if command.split()[1] not in _WITHOUT_HOST:
            self.info = structs.replace(self.info, next_command=f"{command} --host {name}")


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


class ApprovalAwaited(ConfirmationNeeded):
    """A change that was put into the host's inbox, for a person to approve or refuse."""

    def __init__(self, approval_id: str, what: str, why: str) -> None:
        super().__init__(
            f"{what} waits for a person as {approval_id}: {why}",
            hint="a person answers it on the screen (key a) or with `roost approvals`; whoever asked only waits",
            next_command=f"roost approvals wait {approval_id}",
        )
        self.info = structs.replace(self.info, approval_id=approval_id)


class UnknownHostKey(ConfirmationNeeded):
    """A host's key that nobody has accepted yet; `fingerprint` is its SHA-256."""

    def __init__(self, host: str, pattern: str, fingerprint: str, algorithm: str) -> None:
        super().__init__(
            f"the host key of {host} ({pattern}) is not known: {fingerprint} ({algorithm})",
            hint="compare it with what the provider or the host's own console shows",
            next_command=f"roost hosts trust {host} --fingerprint {fingerprint}",
        )
        self.fingerprint = fingerprint


class HostError(ConsoleError):
    """The host's own answer to a request; of the commands that it recommends only those of Roost itself are passed on."""

    def __init__(self, info: ErrorInfo) -> None:
        command = info.next_command
        super().__init__(info if command is None or _OWN.match(command) else structs.replace(info, next_command=None))
