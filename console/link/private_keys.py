"""The private keys of a login: read from their files, an encrypted one after its passphrase was asked for."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path

import asyncssh

from console.errors import ConfirmationNeeded, ConnectionFailed

ATTEMPTS = 3

Ask = Callable[[str], Awaitable[str | None]]
"""Asks a person for a passphrase with the words given; None when he does not want to say."""

ask_passphrase: ContextVar[Ask | None] = ContextVar("ask_passphrase", default=None)
"""How to ask, where there is somebody to ask: set by a front door on a terminal, inherited by everything that it starts."""

_opened: dict[str, asyncssh.SSHKey] = {}
"""Keys whose passphrase was given, for the life of this process, so that a reconnect asks nobody again."""


def read_plain(path: str) -> asyncssh.SSHKey | None:
    """The key in a file, None for one whose passphrase nobody has given yet; raises ConnectionFailed for no key at all."""
    try:
        return _opened.get(path) or asyncssh.read_private_key(path)
    except asyncssh.KeyEncryptionError:
        return None
    except asyncssh.KeyImportError as error:
        if "passphrase" in str(error).lower():
            return None
        raise ConnectionFailed(
            f"the key file {path} cannot be read: {error}",
            hint="look at identity_file in roost.toml and IdentityFile in ~/.ssh/config",
            retryable=False,
        ) from error
    except OSError as error:
        raise ConnectionFailed(f"the key file {path} cannot be read: {error.strerror}", retryable=False) from error


async def unlock(path: str) -> asyncssh.SSHKey:
    """The key in an encrypted file; raises ConfirmationNeeded where nobody can be asked, ConnectionFailed for wrong answers."""
    ask = ask_passphrase.get()
    if ask is None:
        raise ConfirmationNeeded(
            f"the key {path} is encrypted and nobody can be asked for its passphrase",
            hint="add it to the SSH agent first",
            next_command=f"ssh-add {path}",
        )
    question = f"Passphrase of {Path(path).name} ({path})"
    for attempt in range(ATTEMPTS):
        said = await ask(question if attempt == 0 else f"That was not it. {question}")
        if said is None:
            break
        try:
            _opened[path] = asyncssh.read_private_key(path, said)
        except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError):
            continue
        return _opened[path]
    raise ConnectionFailed(
        f"the key {path} was not unlocked", hint="try again, or add it to the SSH agent: ssh-add", retryable=False
    )
