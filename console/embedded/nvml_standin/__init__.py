"""A stand-in for NVIDIA's management library that plays scenarios: for `roost demo --scenario`, the tests and the benchmark.

A file of `scenarios/` begins with a comment of one line that describes it; `extends NAME` stands for the lines of another.
`job = steps` and `job = stands` say what the demo's job does on the devices; the library itself knows no jobs.
"""

import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Literal

from console.errors import ConsoleError, UsageError
from remote.protocol.errors import ErrorCode, ErrorInfo

LIBRARY = "libnvidia-ml.so.1"

_FLAGS = ("-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}")
_LIBRARIES = ("-lm", "-lpthread")


def scenarios() -> dict[str, str]:
    """Every scenario with its description."""
    found = files("console.embedded.nvml_standin").joinpath("scenarios").iterdir()
    texts = {Path(one.name).stem: one.read_text(encoding="utf-8") for one in found if one.name.endswith(".txt")}
    return {name: texts[name].partition("\n")[0].removeprefix("#").strip() for name in sorted(texts)}


def scenario_text(name: str) -> str:
    """The lines of a scenario; raises UsageError that names those there are."""
    known = scenarios()
    if name not in known:
        raise UsageError(
            f"there is no scenario {name!r}",
            hint="there are " + ", ".join(known) + "; `roost demo --scenario list` describes them",
        )
    text = files("console.embedded.nvml_standin").joinpath("scenarios", f"{name}.txt").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    return "".join(scenario_text(line.split()[1]) if line.startswith("extends ") else line for line in lines)


def scenario_job(text: str) -> Literal["steps", "stands"] | None:
    """What the job of a scenario does with its devices: it goes on, or stands still soon; None for a scenario without one."""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "job":
            return "stands" if value.strip() == "stands" else "steps"
    return None


def compiler() -> str | None:
    """A C compiler of this machine."""
    return shutil.which("gcc") or shutil.which("cc")


def build(directory: Path) -> Path:
    """Compile the stand-in into `directory`, where one of the same source is kept; raises ConsoleError where that fails."""
    source = files("console.embedded.nvml_standin").joinpath("nvml.c").read_bytes()
    library, kept = directory / LIBRARY, directory / "nvml.c"
    if library.exists() and kept.exists() and kept.read_bytes() == source:
        return library
    program = compiler()
    if program is None:
        raise _precondition(
            "there is no C compiler here, and the stand-in for the NVIDIA driver has to be compiled",
            "install gcc (Debian and Ubuntu: `apt install gcc libc6-dev`), or look at `roost demo` without a scenario",
        )
    directory.mkdir(parents=True, exist_ok=True)
    kept.unlink(missing_ok=True)
    part, new = directory / ".nvml.c", directory / f".{LIBRARY}"
    part.write_bytes(source)
    done = subprocess.run(
        [program, *_FLAGS, "-o", str(new), str(part), *_LIBRARIES],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise _precondition(
            f"the stand-in for the NVIDIA driver does not compile: {done.stderr.strip()[-600:]}",
            f"{program} needs the headers of the C library (Debian and Ubuntu: `apt install libc6-dev`)",
        )
    new.replace(library)
    part.replace(kept)
    return library


def environment(library: Path, scenario: Path) -> dict[str, str]:
    """What a process needs in its environment to see the stand-in play the file `scenario`."""
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {
        "LD_LIBRARY_PATH": f"{library.parent}:{inherited}" if inherited else str(library.parent),
        "NVML_STANDIN_SCENARIO": str(scenario),
    }


def _precondition(message: str, hint: str) -> ConsoleError:
    return ConsoleError(ErrorInfo(code=ErrorCode.PRECONDITION, message=message, hint=hint))
