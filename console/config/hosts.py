"""The hosts of `roost.toml`: `[hosts.NAME]` with `address` and what differs from OpenSSH's own configuration."""

from typing import Annotated

import msgspec
import tomllib

from console.config.locations import config_directory
from console.errors import UsageError

RESERVED = "embedded"


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a host and where Roost lives on it; None leaves a value to `ssh -G`.

    `jump`: hosts to go through, `[user@]host[:port]`, the first one first, with commas between; `identity_file` is for them, too.
    """

    name: str = ""
    address: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    user: str | None = None
    identity_file: str | None = None
    jump: str | None = None
    root: str = "~/.roost"
    python: str | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hosts: dict[str, HostConfig] = {}


def load_hosts() -> dict[str, HostConfig]:
    """The configured hosts by name; raises UsageError that names the file and the key."""
    path = config_directory() / "roost.toml"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        hosts = msgspec.convert(document, _File).hosts
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}", hint="every host needs [hosts.NAME] with an address") from error
    if RESERVED in hosts:
        raise UsageError(f"{path}: the name {RESERVED!r} is taken by the embedded host", hint="rename [hosts.embedded]")
    return {name: msgspec.structs.replace(host, name=name) for name, host in hosts.items()}
