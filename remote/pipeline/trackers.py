"""What keeps the trackers of a training from being fed, found before it begins."""

import netrc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from remote.jobs import vault
from remote.protocol.run import TrackersConfig

_TIMEOUT_S = 30.0
_MISSING = (
    "import importlib.util, sys; print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))"
)
_WANDB_KEY = "WANDB_API_KEY"


def check_trackers(trackers: TrackersConfig, python: str, root: Path) -> Iterator[str]:
    """Libraries that `python`, which runs the jobs, lacks, and a key that Weights & Biases would ask for."""
    if not trackers.use:
        return
    command = [python, "-c", _MISSING, *dict.fromkeys(trackers.use)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        yield f"training.trackers.use: {python}, which runs the jobs, cannot say what it has installed ({error})."
        return
    for name in found.stdout.split():
        yield (
            f"training.trackers.use names {name}, which {python} has not installed. Install it on the host "
            f"(`{python} -m pip install {name}`), or take it out."
        )
    if "wandb" in trackers.use and trackers.wandb_mode == "online" and not _has_wandb_key(root):
        yield (
            f"training.trackers.use names wandb, but this host has no key for it. Set it by `roost secrets set {_WANDB_KEY}`, or set "
            'training.trackers.wandb_mode to "offline".'
        )


def _has_wandb_key(root: Path) -> bool:
    """Where wandb itself would look: the job's environment, with the host's secrets in it, and what `wandb login` left behind."""
    if _WANDB_KEY in os.environ or _WANDB_KEY in vault.read_values(root):
        return True
    server = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(server or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False
