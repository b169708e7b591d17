"""Installing the embedded host: the engine's environment, the sample model, the conversations."""

import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from console.embedded.engine import EngineInstallFailed, prepare_engine
from console.embedded.locations import EmbeddedHome
from console.errors import ConsoleError
from remote.protocol.errors import ErrorCode, ErrorInfo

SAMPLE_MODEL = "smollm2-135m-instruct"
CONVERSATIONS = ("smollm2_train.jsonl", "smollm2_eval.jsonl")


def prepare(home: EmbeddedHome, report: Callable[[str], None]) -> None:
    """Bring everything that a run of the preset `embedded` needs; what is there already is left alone."""
    try:
        prepare_engine(home.engine, report)
    except EngineInstallFailed as error:
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.PRECONDITION, message=str(error), hint="mend that, then run the same command again"
            )
        ) from error
    _prepare_model(home, report)
    _prepare_conversations(home)


def _prepare_model(home: EmbeddedHome, report: Callable[[str], None]) -> None:
    model = home.root / "models" / SAMPLE_MODEL
    if model.is_dir():
        return
    report(f"converting the sample model into {model}")
    model.parent.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("sample_model.py")
    done = subprocess.run(
        [str(home.engine_python), str(script), str(model)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.FAILED,
                message=f"the sample model could not be converted: {done.stderr.strip()[-600:]}",
                hint=f"remove {home.engine} and prepare again",
            )
        )


def _prepare_conversations(home: EmbeddedHome) -> None:
    directory = home.root / "conversations"
    directory.mkdir(parents=True, exist_ok=True)
    for name in CONVERSATIONS:
        content = files("console.embedded").joinpath("data", name).read_bytes()
        target = directory / name
        if not target.exists() or target.read_bytes() != content:
            temporary = target.with_suffix(".part")
            temporary.write_bytes(content)
            temporary.replace(target)
    shutil.copy(str(files("console.embedded").joinpath("data", "LICENSE-NOTE.md")), directory / "LICENSE-NOTE.md")
