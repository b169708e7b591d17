"""How a log leaves the command: harmless text, its colours only on a terminal and never beyond the end of a line."""

import os
import sys

from console.cli.output import print_document, print_record
from console.documents import log_text
from console.state.log_text import LogText
from console.state.sanitize import without_colors
from remote.protocol.requests import LogPage

_RESET = "\x1b[0m"


class LogOutput:
    """Prints the pages of one log in their order; `stream` makes every page of the JSON a line of its own."""

    def __init__(self, *, as_json: bool, stream: bool) -> None:
        self._as_json = as_json
        self._stream = stream
        self._text = LogText()
        self._has_colors = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._is_colored = False

    def print_page(self, page: LogPage) -> None:
        """Print the next bytes."""
        if self._as_json:
            document = log_text(page, goes_on=self._stream)
            (print_record if self._stream else print_document)("log", document)
        else:
            self._write(self._text.feed(page.data))

    def finish(self) -> None:
        """Print what was still waiting for its rest."""
        if not self._as_json:
            self._write(self._text.feed(b"", final=True))
            sys.stdout.write(_RESET if self._is_colored else "")
            sys.stdout.flush()

    def _write(self, text: str) -> None:
        sys.stdout.write(
            "".join(map(self._line, text.splitlines(keepends=True))) if self._has_colors else without_colors(text)
        )
        sys.stdout.flush()

    def _line(self, line: str) -> str:
        self._is_colored |= "\x1b" in line
        if not self._is_colored or not line.endswith("\n"):
            return line
        self._is_colored = False
        return f"{line[:-1]}{_RESET}\n"
