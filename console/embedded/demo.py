"""Embedded hosts with devices that are played: one for each scenario of the stand-in, each with jobs and readings of its own.

They use what is installed for the embedded host (engine, sample model, conversations) and leave that host as it is.
"""

import contextlib
import os
from pathlib import Path

from console.config.hosts import HostConfig
from console.config.locations import data_directory
from console.embedded import lifecycle, nvml_standin
from console.embedded.locations import EmbeddedHome

PREFIX = "demo-"
"""What the name of such a host begins with; the scenario follows."""

_SHARED = ("models", "conversations")


def demo_home(scenario: str) -> EmbeddedHome:
    """Where the host of a scenario lives; nothing is made yet."""
    directory = data_directory() / "demo" / scenario
    return EmbeddedHome(
        directory=directory,
        engine_python=EmbeddedHome.default().engine_python,
        name=f"{PREFIX}{scenario}",
        environment=nvml_standin.environment(_library_directory() / nvml_standin.LIBRARY, _scenario_file(directory)),
    )


async def ensure_running(scenario: str, *, anew: bool = False) -> HostConfig:
    """The host of a scenario, which begins when its server is started or `anew`; raises UsageError for no scenario."""
    text = nvml_standin.scenario_text(scenario)
    home = demo_home(scenario)
    lifecycle.require_engine(home)
    nvml_standin.build(_library_directory())
    _share_installation(home)
    if anew or not await lifecycle.is_running(home):
        _begin_scenario(home, text)
    return await lifecycle.ensure_running(home)


def _library_directory() -> Path:
    return data_directory() / "demo" / ".library"


def _scenario_file(directory: Path) -> Path:
    return directory / "scenario.txt"


def _begin_scenario(home: EmbeddedHome, text: str) -> None:
    """The time of a scenario begins when its file is written."""
    file = _scenario_file(home.directory)
    new = file.with_name(f".scenario.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def _share_installation(home: EmbeddedHome) -> None:
    home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _SHARED:
        with contextlib.suppress(FileExistsError):
            (home.root / name).symlink_to(EmbeddedHome.default().root / name, target_is_directory=True)
