"""Values that nobody may see, covered by asterisks in whatever form a program writes them. Pure, standard library only."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

SECRET_NAME = re.compile(r"(?:[A-Z][A-Z0-9_]{0,120}_(?:TOKEN|KEY|SECRET)|ROOST_WEBHOOK_URL)\Z")
"""What a secret may be called; as a variable of the environment it is found by this alone. Whoever knows the address of a webhook can post there."""

LEAST_LENGTH, MOST_LENGTH = 8, 4096
"""Shorter values would cover ordinary words; longer ones are no tokens."""

_COVER = b"*"
_TOLD_LENGTH = 3
"""So many first characters of a value say nothing."""


def is_secret_value(value: str) -> bool:
    """Whether `value` can be kept and covered: one word of printable ASCII of 8 to 4096 characters."""
    return LEAST_LENGTH <= len(value) <= MOST_LENGTH and all("!" <= character <= "~" for character in value)


class Redactor:
    """Covers a set of values. Its output has the length of its input, so that offsets stay true."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form.encode() for value in values for form in _forms(value)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._in_json = sorted({_in_json(form.decode()).encode() for form in forms})

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Redactor":
        """What covers the secrets that a process was started with."""
        found = (value for name, value in environment.items() if SECRET_NAME.match(name))
        return cls(value for value in found if is_secret_value(value))

    def __bool__(self) -> bool:
        return bool(self._forms)

    @property
    def margin(self) -> int:
        """So many bytes around a page may belong to a value that begins or ends in it."""
        return len(self._forms[0]) - 1 if self._forms else 0

    def redact(self, data: bytes) -> bytes:
        """`data` with every whole value covered."""
        covered: bytearray | None = None
        for form in self._forms:
            at = data.find(form)
            while at >= 0:
                covered = covered or bytearray(data)
                covered[at : at + len(form)] = _COVER * len(form)
                at = data.find(form, at + 1)
        return data if covered is None else bytes(covered)

    def redact_text(self, text: str) -> str:
        """`text` with every whole value covered; its length stays."""
        if not self._forms:
            return text
        return self.redact(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def redact_json(self, line: bytes) -> bytes:
        """A JSON line with every whole value covered in its strings; its names and its structure stay."""
        if not any(form in line for form in self._in_json):
            return line
        covered = json.dumps(self._walk(json.loads(line)), ensure_ascii=False, separators=(",", ":")).encode()
        return covered + b"\n" if line.endswith(b"\n") else covered

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end of `data` may be the beginning of a value."""
        tail = data[len(data) - min(len(data), self.margin) :]
        tail = tail[tail.rfind(b"\n") + 1 :]
        starts = (at for at in range(len(tail)) if any(form.startswith(tail[at:]) for form in self._forms))
        first = next(starts, None)
        return 0 if first is None else len(tail) - first

    def page(self, window: bytes, begin: int, end: int, *, may_grow: bool) -> bytes:
        """What may be shown of `window[begin:end]`; the window reaches `margin` bytes beyond both, or to the ends of the file.

        Of a file that may grow the beginning of a value is kept back until its rest is there; of one that is whole it is
        covered.
        """
        covered = self.redact(window)
        waiting = self.unfinished(window)
        if may_grow:
            return covered[begin : min(end, len(window) - waiting)]
        if waiting > _TOLD_LENGTH:
            covered = covered[: len(window) - waiting] + _COVER * waiting
        return covered[begin:end]

    def _walk(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
        match value:
            case str():
                return self.redact_text(value)
            case list():
                return [self._walk(item) for item in value]
            case dict():
                return {name: self._walk(item) for name, item in value.items()}
            case _:
                return value


NOTHING = Redactor([])
"""Covers nothing."""


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _forms(value: str) -> set[str]:
    """The value as it is, as Python shows it, inside JSON, inside JSON inside JSON, and inside a URL."""
    urls = {quote(value, safe=""), quote(value)}
    urls |= {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), url) for url in urls}
    return {value, repr(value)[1:-1], _in_json(value), _in_json(_in_json(value)), *urls}
