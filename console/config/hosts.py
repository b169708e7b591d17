"""The hosts of `roost.toml`: `[hosts.NAME]` with `address` and what differs from OpenSSH's own configuration."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tomllib

from console.config.locations import config_directory
from console.config.notifications import NotificationConfig
from console.config.policy import Policy
from console.errors import UsageError
from console.state.cost import Price

RESERVED = "embedded"


class SlurmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host's allocation asks Slurm for, as sbatch writes it; `options` are further words such as `--account=lab`.

    `notice_s`: so long before its time is over the allocation's jobs are told to stop, so that a training saves first.
    """

    partition: str | None = None
    gpus: Annotated[int, msgspec.Meta(ge=1)] | None = None
    time_limit: str | None = None
    notice_s: Annotated[int, msgspec.Meta(ge=30, le=3600)] = 120
    options: list[Annotated[str, msgspec.Meta(pattern=r"^--?[a-zA-Z][^\n]*\Z")]] = []

    def __post_init__(self) -> None:
        """Raises ValueError for a word that would end its line of the script."""
        for word in (self.partition, self.time_limit):
            if word is not None and not re.fullmatch(r"[\w:,.+-]+", word):
                raise ValueError(f"{word!r} is no single word")


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a host and where Roost lives on it; None leaves a value to `ssh -G`.

    `jump`: hosts to go through, `[user@]host[:port]`, the first one first, with commas between; `identity_file` is for them, too.
    `agents`: what AI agents may do there through `roost mcp`. `slurm`: the address is a login host, and Roost lives in an allocation that
    is asked for there; `root` is on a file system that login host and nodes share. `price_per_hour` is what an hour of the host costs in
    `currency`; None says nothing of money anywhere.
    """

    name: str = ""
    address: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    user: str | None = None
    identity_file: str | None = None
    jump: str | None = None
    root: str = "~/.roost"
    python: str | None = None
    agents: Policy = "operate"
    slurm: SlurmConfig | None = None
    price_per_hour: Annotated[float, msgspec.Meta(gt=0)] | None = None
    currency: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z$€£¥]{1,5}\Z")] = "USD"

    @property
    def price(self) -> Price | None:
        """What an hour costs, where it is said."""
        return None if self.price_per_hour is None else Price(per_hour=self.price_per_hour, currency=self.currency)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hosts: dict[str, HostConfig] = {}
    notifications: NotificationConfig = NotificationConfig()


def hosts_file() -> Path:
    """Where the hosts are configured, whether it is there or not."""
    return config_directory() / "roost.toml"


def load_hosts() -> dict[str, HostConfig]:
    """The configured hosts by name; raises UsageError that names the file and the key."""
    hosts = _load().hosts
    if RESERVED in hosts:
        raise UsageError(
            f"{hosts_file()}: the name {RESERVED!r} is taken by the embedded host", hint="rename [hosts.embedded]"
        )
    return {name: msgspec.structs.replace(host, name=name) for name, host in hosts.items()}


def load_notifications() -> NotificationConfig:
    """How an open screen gets attention; raises UsageError as above."""
    return _load().notifications


def _load() -> _File:
    path = hosts_file()
    document: dict[str, Any] = {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(document, _File)
    except FileNotFoundError:
        return _File()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            f"{path}: {_in_words(error, document)}", hint="every host needs [hosts.NAME] with an address"
        ) from error


def price_of(name: str) -> Price | None:
    """What an hour of a host costs, where `roost.toml` says it; raises UsageError for a file that is wrong."""
    host = load_hosts().get(name)
    return None if host is None else host.price


def _in_words(error: Exception, document: dict[str, Any]) -> str:
    """`error` with the host that it is about, whose name msgspec leaves out."""
    hosts = document.get("hosts")
    for name, table in hosts.items() if isinstance(hosts, dict) else ():
        try:
            msgspec.convert(table, HostConfig)
        except msgspec.ValidationError as of_one:
            return f"[hosts.{name}]: {of_one}"
    return str(error)
