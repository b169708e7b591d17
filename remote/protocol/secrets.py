"""Tokens for the jobs of a host: their values travel to it once and never come back."""

from typing import Annotated, Literal

import msgspec

from remote.protocol.base import Message
from remote.protocol.ids import OpId
from remote.redaction import SECRET_NAME

SecretName = Annotated[str, msgspec.Meta(pattern="^" + SECRET_NAME.pattern)]
"""Capitals, digits and underscores, ending in `_TOKEN`, `_KEY` or `_SECRET`: the variable that jobs find the value in."""


class SetSecret(Message, frozen=True, kw_only=True):
    """Keep `value` for every job that starts from now on -> `SecretList`. Its text form does not show the value."""

    name: SecretName
    value: str
    op_id: OpId

    def __repr__(self) -> str:
        return f"SetSecret(name={self.name!r}, value=***, op_id={self.op_id!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("name", self.name), ("op_id", self.op_id)]


class RemoveSecret(Message, frozen=True, kw_only=True):
    """Forget a secret -> `SecretList`; jobs that are at work keep what they started with."""

    name: SecretName
    op_id: OpId


class ListSecrets(Message, frozen=True, kw_only=True):
    """The names of the host's secrets -> `SecretList`."""


class Secret(Message, frozen=True, kw_only=True):
    """A secret by its name; `gone` means that its value was lost with the host's memory and must be set again."""

    name: SecretName
    state: Literal["set", "gone"]
    kept_in: Literal["memory", "disk"]
    set_at: float
    set_by: str


class SecretList(Message, frozen=True, kw_only=True):
    """The secrets by name, and what there is to know about where they are kept."""

    secrets: list[Secret]
    note: str = ""
