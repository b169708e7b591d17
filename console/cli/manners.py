"""How a verb was asked to behave: which fields of its document it prints, and whether it may ask a person."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
import typer


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """`fields` None means the whole document; `asks` is whether a question may be put to a person at all."""

    fields: list[str] | None = None
    asks: bool = True


_manners: ContextVar[Manners] = ContextVar("manners", default=Manners())  # noqa: B039 - frozen


@contextmanager
def manners(*, fields: list[str] | None, asks: bool) -> Iterator[None]:
    """The manners of what runs within."""
    token = _manners.set(Manners(fields=fields, asks=asks))
    try:
        yield
    finally:
        _manners.reset(token)


def chosen_fields() -> list[str] | None:
    """Which fields of the document are wanted; None for all."""
    return _manners.get().fields


def may_ask() -> bool:
    """Whether there is somebody to ask: a terminal, and neither --no-input nor --json."""
    return _manners.get().asks and sys.stdin.isatty()


def agreed(question: str) -> bool:
    """Whether a person who was asked says yes; no where nobody may be asked."""
    return may_ask() and typer.confirm(question, default=False, err=True)
