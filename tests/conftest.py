"""Fixtures that several packages share."""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# A reserve for every root of every test would fill the disk of the machine that runs them.
os.environ.setdefault("ROOST_RESERVE_BYTES", str(1 << 20))

# No test leaves a background session behind, nor finds one that is there.
os.environ.pop("XDG_RUNTIME_DIR", None)

# An invariant is about results, not about the time that a busy machine takes for them.
settings.register_profile("results", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("results")

REPOSITORY = Path(__file__).resolve().parent.parent


def _engine_python(variable: str, directory: str) -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return Path(os.environ.get(variable) or data / "roost/embedded" / directory / "bin/python")


_ENGINE_PYTHON = _engine_python("ROOST_ENGINE_PYTHON", "engine")
_VLLM_PYTHON = _engine_python("ROOST_VLLM_PYTHON", "engine-vllm")


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The interpreter of the engine's environment; `make engine` installs it."""
    if not _ENGINE_PYTHON.exists():
        pytest.fail(f"no engine at {_ENGINE_PYTHON}: run `make engine`, or set ROOST_ENGINE_PYTHON")
    return _ENGINE_PYTHON


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter of vLLM's environment; `make engine-vllm` installs it."""
    if not _VLLM_PYTHON.exists():
        pytest.fail(f"no vLLM at {_VLLM_PYTHON}: run `make engine-vllm`, or set ROOST_VLLM_PYTHON")
    return _VLLM_PYTHON


OLDER = "older"
"""Where below the peers' packages an older version of one of them lies."""


class Peers(NamedTuple):
    """SpecForge, speculators and ModelOpt beside the engine's packages, to compare with what they do themselves."""

    python: Path
    packages: Path
    first: tuple[Path, ...] = ()

    @property
    def older(self) -> "Peers":
        """The same with speculators 0.8.0 in place of the present one."""
        return self._replace(first=(self.packages / OLDER,))

    def run(self, script: Path, *arguments: object) -> str:
        """What `script` prints under the engine's interpreter; its failure is the test's, with what it said."""
        paths = [*self.first, self.packages, REPOSITORY / "remote/engines/sglang_cpu", REPOSITORY]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
        command = [self.python, script, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="session")
def peers(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Peers:
    """The other trainers, installed for the tests; `ROOST_PEERS` names a directory that has them."""
    if (there := os.environ.get("ROOST_PEERS")) is not None:
        return Peers(engine_python, Path(there))
    directory = tmp_path_factory.mktemp("peers")
    install = [engine_python, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, directory, "-r", REPOSITORY / "bench/peer-requirements.txt"], check=True)
    subprocess.run([*install, directory / OLDER, "speculators==0.8.0"], check=True)
    return Peers(engine_python, directory)


@pytest.fixture
def embedded_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of its own, so that a test's embedded host is not the developer's; returns `<data>/roost`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "data/roost"
