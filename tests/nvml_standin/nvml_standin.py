"""NVML as a scenario file tells it: the stand-in that ships with the console, and the file that drives it.

The library is found through LD_LIBRARY_PATH, which a process reads when it starts: only what is started with
`Standin.environment` (or after `Standin.use`) sees it, never the process of the tests.
"""

from pathlib import Path

import pytest

from console.embedded.nvml_standin import build as build_library
from console.embedded.nvml_standin import compiler, environment, scenario_text


class Standin:
    """One scenario, which a test may change while processes read it."""

    def __init__(self, library: Path, scenario: Path) -> None:
        self._scenario = scenario
        self._text = ""
        self._changes: dict[str, str] = {}
        self.environment = environment(library, scenario)
        self.play("healthy")

    def play(self, name: str) -> None:
        """Go over to the scenario `name`; changes made before are forgotten."""
        self._text = scenario_text(name)
        self._changes = {}
        self._write()

    def change(self, changes: dict[str, object]) -> None:
        """Lay `key: value` over the scenario."""
        self._changes |= {key: str(value) for key, value in changes.items()}
        self._write()

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let everything that this process starts from now on see the stand-in."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def _write(self) -> None:
        new = self._scenario.with_suffix(".new")
        new.write_text("".join(f"{key} = {value}\n" for key, value in self._changes.items()) + self._text)
        new.rename(self._scenario)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stand-in; skips where there is no C compiler."""
    if compiler() is None:
        pytest.skip("no C compiler here to build the stand-in for NVML")
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml_standin(nvml_library: Path, tmp_path: Path) -> Standin:
    """Eight healthy devices, until the test says otherwise."""
    return Standin(nvml_library, tmp_path / "scenario.txt")
