"""Tokens for the jobs of a host: their values travel there once and are never told again."""

from console.operations import Session, ask
from remote.protocol.ids import OpId, new_op_id
from remote.protocol.secrets import ListSecrets, RemoveSecret, SecretList, SetSecret


async def set_secret(session: Session, name: str, value: str, *, op_id: OpId | None = None) -> SecretList:
    """Keep a token on the host for every job that starts from now on; the value is never told again."""
    return await ask(session, SetSecret(name=name, value=value, op_id=op_id or new_op_id()), SecretList)


async def list_secrets(session: Session) -> SecretList:
    """The names of the host's tokens, and which of them a restart has lost."""
    return await ask(session, ListSecrets(), SecretList)


async def remove_secret(session: Session, name: str, *, op_id: OpId | None = None) -> SecretList:
    """Forget a token of the host; jobs that are at work keep what they started with."""
    return await ask(session, RemoveSecret(name=name, op_id=op_id or new_op_id()), SecretList)
