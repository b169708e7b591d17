"""The `roost` command against a host of the test's own."""

import os
import subprocess
import sys
from pathlib import Path

from console.config.hosts import HostConfig


def name_in_configuration(host: HostConfig) -> None:
    """Make the host known to the command as `lab`; a server of the embedded kind keeps its key in the console's own file."""
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "roost/roost.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "identity_file": host.identity_file,
        "root": host.root,
        "python": host.python,
    }
    lines = [f"{key} = {value if isinstance(value, int) else repr(value)}" for key, value in values.items()]
    path.write_text("[hosts.lab]\n" + "\n".join(lines) + "\n")


def roost(*arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "console.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
