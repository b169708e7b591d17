"""What a console learns about the host when it arrives."""

import importlib.metadata
import os
import platform
import pwd
import re
import socket
import sys
from pathlib import Path

from remote.jobs import process
from remote.jobs.store import JobStore
from remote.protocol.requests import Package, Welcome
from remote.protocol.version import PROTOCOL_VERSION

_PACKAGES = ("msgspec", "psutil", "nvidia-ml-py", "numpy", "torch", "sglang", "vllm", "transformers")


def describe_host(store: JobStore) -> Welcome:
    """Who answers, and with what."""
    return Welcome(
        protocol=PROTOCOL_VERSION,
        release=_release_name(store.release),
        host_name=socket.gethostname(),
        user=_user_name(),
        root=str(store.root),
        python=sys.executable,
        python_version=platform.python_version(),
        incarnation=process.incarnation(),
        boot_at=_boot_time(),
        packages=[Package(name=name, version=_version(name)) for name in _PACKAGES],
    )


def _release_name(release: Path) -> str:
    return release.name if re.fullmatch(r"[0-9a-f]{64}", release.name) else "development"


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _boot_time() -> float:
    """Seconds since the epoch at which this host's kernel started, by its own account."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), 0.0)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
