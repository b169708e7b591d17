"""The keeper of a batch allocation: it starts supervisors for links that are steps of the allocation.

A batch system ends a step together with all that the step has started, and a link is such a step: what it starts itself would end when
the console hangs up. The keeper is the allocation's batch script, which lives as long as the allocation does. Links have
`$ROOST_KEPT` set and reach it at a socket beside the root's locks, which is local to the node and private to the user.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from remote.errors import Conflict, Precondition, WorkFailed
from remote.jobs import process
from remote.jobs.locks import lock_directory
from remote.jobs.work import become_subreaper, reap

Start = Callable[[Path, list[str], dict[str, str]], bytes | None]
"""Runs a supervisor's command for a job's directory, in an environment: `remote.jobs.spawn.start_detached`."""

ANSWER_TIMEOUT_S = 45.0
_TICK_S = 0.2
_REQUEST_BYTES = 1 << 20


class Keeper:
    """Starts supervisors until it is told to end, then ends them and waits until all of them are gone."""

    def __init__(self, root: Path, start: Start) -> None:
        self._path = socket_path(root)
        self._start = start
        self._is_told_to_end = False

    def run(self) -> None:
        """Keep the allocation; raises Conflict when another keeper of the same root lives on this node."""
        become_subreaper()
        signal.signal(signal.SIGTERM, self._on_sigterm)
        with contextlib.closing(self._listen()) as listener:
            while not self._is_told_to_end:
                with contextlib.suppress(TimeoutError):
                    asker, _ = listener.accept()
                    threading.Thread(target=_serve, args=(asker, self._start), daemon=True).start()
                reap()
            self._path.unlink()
        told: set[int] = set()
        while children := _children():
            for child in children - told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
            told |= children
            reap()
            time.sleep(_TICK_S)

    def _on_sigterm(self, *_: object) -> None:
        self._is_told_to_end = True

    def _listen(self) -> socket.socket:
        if _is_answered(self._path):
            raise Conflict("this root has a keeper on this node already", hint="one allocation at a time has a root")
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        self._path.chmod(0o600)
        listener.listen()
        listener.settimeout(_TICK_S)
        return listener


def socket_path(root: Path) -> Path:
    """Where the keeper of `root` listens, on each node by itself."""
    return lock_directory(root) / "keeper.sock"


def start_by_keeper(root: Path, directory: Path, argv: list[str], environment: dict[str, str]) -> bytes | None:
    """Let the keeper start a supervisor; its answer as `start_detached` gives it.

    Raises Precondition when there is no keeper or it cannot run the interpreter, WorkFailed when it does not answer.
    """
    request = {"directory": str(directory), "argv": argv, "environment": environment}
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(ANSWER_TIMEOUT_S)
        try:
            asking.connect(str(socket_path(root)))
        except OSError as error:
            raise Precondition(
                "the allocation is ending or has lost its keeper: nothing can be started in it",
                hint="`roost allocation start HOST` asks for a new one once this one is over",
            ) from error
        try:
            asking.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(_read_line(asking))
        except (OSError, ValueError) as error:
            raise WorkFailed(f"the keeper of the allocation does not answer: {error}") from error
    if answer["error"] is not None:
        raise Precondition(answer["error"], hint="Deploy to this host again.")
    return None if answer["said"] is None else answer["said"].encode()


def _serve(asker: socket.socket, start: Start) -> None:
    with asker, contextlib.suppress(OSError, ValueError, KeyError):  # whoever asked has gone, or is none of ours
        asker.settimeout(ANSWER_TIMEOUT_S)
        wanted = json.loads(_read_line(asker))
        said, error = None, None
        try:
            said = start(Path(wanted["directory"]), wanted["argv"], {**os.environ, **wanted["environment"]})
        except Precondition as refused:
            error = refused.info.message
        reply = {"said": None if said is None else said.decode(errors="replace"), "error": error}
        asker.sendall(json.dumps(reply).encode() + b"\n")


def _read_line(stream: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        block = stream.recv(1 << 16)
        if not block or len(line) > _REQUEST_BYTES:
            raise ValueError("a torn line")
        line += block
    return line


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


def _children() -> set[int]:
    me = os.getpid()
    return {one.pid for one in process.every_process() if one.parent == me and one.state not in ("Z", "X", "x")}
