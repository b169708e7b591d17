"""The `roost` command as a user runs it, against an embedded host of the test's own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest


class Roost:
    """The `roost` command against an embedded host of its own."""

    def __init__(self, directory: Path, engine_python: Path) -> None:
        self.data = directory / "data/roost/embedded"
        self.root = self.data / "root"
        (self.root / "conversations").mkdir(parents=True)
        (self.data / "engine").symlink_to(engine_python.parent.parent)
        (self.root / "models").mkdir()
        self.environment = {
            **os.environ,
            "XDG_DATA_HOME": str(directory / "data"),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "console.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def __call__(self, *arguments: str) -> tuple[int, dict, str]:
        process = self.start(*arguments, "--json")
        out, err = process.communicate()
        return process.returncode, json.loads(out), err

    def log(self, job_id: str) -> str:
        return (self.root / "jobs" / job_id / "out.log").read_text(errors="replace")

    def owns(self, process: psutil.Process) -> bool:
        """Whether a job of this host started it."""
        try:
            return process.environ().get("ROOST_ROOT") == str(self.root)
        except psutil.Error:
            return False

    def server_pid(self) -> int:
        return json.loads((self.data / "server/address.json").read_bytes())["pid"]


@pytest.fixture(scope="module")
def new_roost(tmp_path_factory: pytest.TempPathFactory, engine_python: Path) -> Iterator[Callable[[], Roost]]:
    """Makes embedded hosts that are stopped afterwards."""
    made: list[Roost] = []

    def make() -> Roost:
        made.append(Roost(tmp_path_factory.mktemp("chain"), engine_python))
        return made[-1]

    yield make
    for roost in made:
        roost("embedded", "stop")
