"""Starting a job's supervisor, detached from whoever asked for it."""

import os
import select
import subprocess
import time
from pathlib import Path

from remote.artifacts import reserve
from remote.errors import Precondition, WorkFailed
from remote.jobs import keeper, process, supervisor
from remote.protocol.codec import KEPT_VARIABLE

START_TIMEOUT_S = 30.0


def spawn_supervisor(python: str, directory: Path, cookie: str) -> None:
    """Start the supervisor of the job in `directory` and wait until the work's start is on record.

    A supervisor that is still not there after half a minute is left to it: the job shows as starting. Raises WorkFailed
    with the supervisor's own words when it could not start the work, Precondition when `python` cannot be run.
    """
    root, argv = directory.parents[1], [python, "-I", str(Path(supervisor.__file__).resolve()), str(directory)]
    mark = {process.SUPERVISOR_VARIABLE: cookie}
    if KEPT_VARIABLE in os.environ:
        answer = keeper.start_by_keeper(root, directory, argv, mark)
    else:
        answer = start_detached(directory, argv, {**_inherited(), **mark})
    if answer is not None and answer != supervisor.STARTED:
        said = answer.decode(errors="replace").strip() or f"it died without a word; see {directory}/supervisor.log"
        raise WorkFailed(f"the supervisor of {directory.name} could not start its work: {said}")


def start_detached(directory: Path, argv: list[str], environment: dict[str, str]) -> bytes | None:
    """Run a supervisor's command and hear what it says until it lets go; None when it says nothing in time.

    Raises Precondition when the interpreter cannot be run.
    """
    with reserve.insist(directory.parents[1], lambda: (directory / "supervisor.log").open("ab")) as log:
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd="/", env=environment
            )
        except OSError as error:
            raise Precondition(
                f"the interpreter {argv[0]} cannot be run: {error.strerror}", hint="Deploy to this host again."
            ) from error
    try:
        answer = _read_answer(child)
    finally:
        if child.stdout is not None:
            child.stdout.close()
    child.wait()
    return answer


def _read_answer(child: "subprocess.Popen[bytes]") -> bytes | None:
    if child.stdout is None:
        return None
    answer = b""
    deadline = time.monotonic() + START_TIMEOUT_S
    while select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(child.stdout.fileno(), 1 << 16)
        if not more:
            return answer
        answer += more
    return None


def _inherited() -> dict[str, str]:
    """The caller's environment without the marks of the job that the caller itself may be."""
    return {name: value for name, value in os.environ.items() if name not in _OWN_MARKS}


_OWN_MARKS = (process.COOKIE_VARIABLE, process.SUPERVISOR_VARIABLE, "ROOST_JOB_DIR")
