"""The two roots of every struct in the contract."""

import re

import msgspec

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _snake(name: str) -> str:
    return _WORD_START.sub("_", name).lower()


class Message(msgspec.Struct, frozen=True, tag_field="type", tag=_snake):
    """A record that crosses the wire; unknown fields are ignored so that either side may be newer, unknown tags are refused."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a run file; an unknown key is an error because it is a misspelt one."""
