"""Where the embedded host keeps its files."""

import sys
from pathlib import Path
from typing import Self

import msgspec

from console.config.hosts import RESERVED
from console.config.locations import data_directory


class EmbeddedHome(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of an embedded host, the interpreter that its jobs run under, and what is laid over its environment."""

    directory: Path
    engine_python: Path
    name: str = RESERVED
    environment: dict[str, str] = {}

    @classmethod
    def default(cls) -> Self:
        """The embedded host of this installation."""
        directory = data_directory() / "embedded"
        return cls(directory=directory, engine_python=directory / "engine/bin/python")

    @property
    def engine(self) -> Path:
        """The engine's environment."""
        return self.directory / "engine"

    @property
    def root(self) -> Path:
        """The host's ROOT: jobs, releases, runs, models and conversations."""
        return self.directory / "root"

    @property
    def server(self) -> Path:
        """The SSH server's keys, its address and its log (0700)."""
        return self.directory / "server"

    @property
    def address_file(self) -> Path:
        """Port, pid and host key of the running server (0600)."""
        return self.server / "address.json"

    @property
    def stopped_file(self) -> Path:
        """There while the server is stopped because somebody wanted it so."""
        return self.server / "stopped"

    @property
    def client_key_file(self) -> Path:
        """The only key that may log in."""
        return self.server / "client_key"

    @property
    def server_command(self) -> list[str]:
        """The command that runs the SSH server."""
        return [sys.executable, "-m", "console.embedded", str(self.directory)]
