"""What leaves the command: documents on stdout, narration on stderr, exit codes.

Exit codes: 0 ok, 1 the operation failed, 2 usage, 3 connection, 4 timeout, 5 precondition, 6 confirmation needed,
130 interrupted.
"""

import asyncio
import getpass
import os
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import typer

from console import operations
from console.cli.manners import chosen_fields, may_ask
from console.documents import SCHEMA_VERSION, select
from console.errors import ConsoleError, UsageError
from console.state.sanitize import escape_controls, sanitize
from remote.protocol.errors import ErrorCode, ErrorInfo

EXIT_CODES = {
    ErrorCode.FAILED: 1,
    ErrorCode.USAGE: 2,
    ErrorCode.NOT_FOUND: 2,
    ErrorCode.CONNECTION: 3,
    ErrorCode.PROTOCOL: 3,
    ErrorCode.TIMEOUT: 4,
    ErrorCode.CONFLICT: 5,
    ErrorCode.PRECONDITION: 5,
    ErrorCode.CONFIRMATION: 6,
}

EXIT_INTERRUPTED = 130

_T = TypeVar("_T")


def _document(kind: str, payload: Any) -> bytes:  # noqa: ANN401 - whatever msgspec encodes
    fields = None if kind == "error" else chosen_fields()
    shown = payload if fields is None else select(msgspec.to_builtins(payload), fields)
    return msgspec.json.encode({"schema_version": SCHEMA_VERSION, kind: shown})


def print_document(kind: str, payload: Any) -> None:  # noqa: ANN401 - whatever msgspec encodes
    """One JSON document: `{"schema_version": 1, "<kind>": payload}`, with the fields that were asked for."""
    document = _document(kind, payload)
    sys.stdout.write(escape_controls(msgspec.json.format(document, indent=2).decode()) + "\n")
    sys.stdout.flush()


def print_record(kind: str, payload: Any) -> None:  # noqa: ANN401 - whatever msgspec encodes
    """One line of an NDJSON stream."""
    line = _document(kind, payload).decode()
    sys.stdout.write(escape_controls(line) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Lines for a person, on stdout."""
    sys.stdout.write(sanitize(text) + "\n")


def narrate(text: str) -> None:
    """A line about what is going on, on stderr."""
    sys.stderr.write(sanitize(text) + "\n")
    sys.stderr.flush()


def report_error(info: ErrorInfo, *, as_json: bool) -> None:
    """What happened, what to do next; in JSON mode the error document is what stdout holds."""
    if as_json:
        print_document("error", info)
    narrate(f"roost: {info.message}")
    if info.hint:
        narrate(f"  hint: {info.hint}")
    if info.next_command:
        narrate(f"  next: {info.next_command}")


async def _ask_on_the_terminal(question: str) -> str | None:
    try:
        return await asyncio.to_thread(getpass.getpass, f"{question}: ", sys.stderr) or None
    except EOFError:
        return None


def has_terminal() -> bool:
    """Whether a person sits at a terminal."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def is_dumb() -> bool:
    """Whether the terminal says of itself that nothing can be drawn on it."""
    return os.environ.get("TERM") == "dumb"


def require_terminal() -> None:
    """Leave with a usage error where there is no terminal that the screen could be drawn on."""
    if has_terminal() and not is_dumb():
        return
    hint = "`roost --plain` tells what happens, a sentence a line; `roost jobs` and `roost telemetry --watch` say the same as text"
    report_error(UsageError("the screen needs a terminal", hint=hint).info, as_json=False)
    raise typer.Exit(EXIT_CODES[ErrorCode.USAGE])


def execute(work: Coroutine[Any, Any, _T], *, as_json: bool) -> _T:
    """Run an operation; errors become their message and exit code, Ctrl-C becomes 130."""
    if may_ask() and sys.stderr.isatty():
        operations.ask_passphrases_with(_ask_on_the_terminal)
    operations.report_beginnings_with(narrate)
    operations.keep_hosts_warm()
    try:
        return asyncio.run(work)
    except ConsoleError as error:
        report_error(error.info, as_json=as_json)
        raise typer.Exit(EXIT_CODES[error.info.code]) from error
    except KeyboardInterrupt:
        narrate("roost: interrupted; jobs on the host go on")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(0) from None
