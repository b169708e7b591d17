"""A process that is one end of a transfer: frames on standard input and output, its status on standard error."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from remote.bulk.inventory import place
from remote.bulk.receive import receive
from remote.bulk.send import send
from remote.bulk.wire import Wire
from remote.errors import RoostError, WorkFailed
from remote.protocol.base import Message
from remote.protocol.bulk import BulkAdvanced
from remote.protocol.codec import encode_line

VERBS: dict[str, Callable[..., Message]] = {"send": send, "receive": receive}

_TELL_INTERVAL_S = 0.2


def run_end(
    verb: str,
    root: Path,
    path: str,
    *,
    announce: bool,
    recording: AbstractContextManager[None] = nullcontext(),  # noqa: B008 - it has no state
) -> int:
    """Be the end that `verb` names; the exit code. `announce` is for the end on the host, which waits behind a bootstrap.

    The transfer runs within `recording`, which sees its errors.
    """
    wire = Wire.take_over_stdio(announce=announce)
    try:
        with recording:
            done = VERBS[verb](place(root, path, writing=verb == "receive"), wire, _Teller())
    except RoostError as error:
        failure = error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        failure = WorkFailed(f"{where}{error.strerror or error}")
    else:
        _say(done)
        return 0
    wire.fail(failure.info)
    _say(failure.info)
    return 1


class _Teller:
    def __init__(self) -> None:
        self._told_at = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told_at >= _TELL_INTERVAL_S or done == total:
            self._told_at = now
            _say(BulkAdvanced(bytes_done=done, bytes_total=total))


def _say(message: Message) -> None:
    sys.stderr.write(encode_line(message).decode())
    sys.stderr.flush()
