"""Every worker's main: the spec comes in, progress and the result go out, signals become a request to stop.

Exit codes: 0 with `result.json`; 5 for an unmet precondition or a conflict and 1 for any other failure, with `failure.json`; 143 when the
work gave up because it was asked to stop.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import msgspec

from remote.agents.progress_file import ProgressFile
from remote.agents.room import Room, Stopped
from remote.artifacts import reserve
from remote.engines.sglang_capture.roost_sglang_capture import steady_log
from remote.errors import Conflict, Precondition, RoostError, UsageError
from remote.protocol.codec import decode_spec, encode_line
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Note, Progress, ProgressRecord, StageChanged
from remote.redaction import Redactor

EXIT_FAILED = 1
EXIT_PRECONDITION = 5
EXIT_STOPPED = 143

_MESSAGE_LIMIT = 16_000
"""Characters of an error that are kept; a progress record must fit into a line."""

_SpecT = TypeVar("_SpecT")
_T = TypeVar("_T")


class JobContext:
    """What a worker knows of its job: where it lives, whether it should stop, and how to tell its progress."""

    def __init__(self, directory: Path, root: Path) -> None:
        self.directory = directory
        self.root = root
        self.job_id = directory.name
        self.redactor = Redactor.of_environment(os.environ)
        self.stop_requested = threading.Event()
        self.room = Room(directory, root, self.stop_requested, self._warn)
        self._progress = ProgressFile(directory / "progress.jsonl", root, self._encode)

    def tell(self, event: Progress) -> None:
        """Append an event to the job's progress, later when the disk is full; safe from any thread.

        Raises ProtocolError for one over 1 MiB.
        """
        self._progress.tell(event, time.time())
        if not isinstance(event, StageChanged):  # a run writes its own log
            sys.stdout.write(
                f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {self.redactor.redact_text(_log_line(event))}\n"
            )
            sys.stdout.flush()

    def write_with_room(
        self,
        path: Path,
        bytes_needed: int | None,
        action: Callable[[], _T],
        *,
        inodes_needed: int = 1,
        clean: Callable[[], object] | None = None,
    ) -> _T:
        """Do `action`, which writes `path` and can be repeated; a full disk pauses the job until there is room.

        See `Room.write`; raises Stopped.
        """
        return self.room.write(path, bytes_needed, action, inodes_needed=inodes_needed, clean=clean)

    def record_result(self, result: JobResult) -> None:
        """Write the result after everything that was told: at the cost of the reserve, else as soon as there is room."""
        path, data = self.directory / "result.json", self.redactor.redact_json(msgspec.json.encode(result))
        try:
            self._write_result(path, data)
        except OSError as error:
            if not reserve.is_full(error):
                raise
            self.write_with_room(path, len(data), lambda: self._write_result(path, data))

    def record_failure(self, failure: ErrorInfo) -> None:
        """The error that ended the work; where even the reserve has no room the log and the exit code say it."""
        with contextlib.suppress(OSError):
            reserve.write_atomic(self.root, self.directory / "failure.json", msgspec.json.encode(failure))

    def _write_result(self, path: Path, data: bytes) -> None:
        if not self._progress.catch_up():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        reserve.write_atomic(self.root, path, data)

    def _encode(self, record: ProgressRecord) -> bytes:
        return self.redactor.redact_json(encode_line(record))

    def _warn(self, text: str) -> None:
        self.tell(Note(level="warning", text=text))

    def check_stop(self) -> None:
        """Raise Stopped when a stop was asked for."""
        if self.stop_requested.is_set():
            raise Stopped


def _log_line(event: Progress) -> str:
    """An event as `name key=value …`, for the job's log."""
    name, *pairs = msgspec.to_builtins(event).items()
    return " ".join([name[1], *(f"{key}={_short(value)}" for key, value in pairs if value is not None)])


def _short(value: object) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case list():
            return ",".join(map(_short, value))
        case _:
            return str(value)


def _request_stop_on_signals(job: JobContext) -> None:
    def request(signum: int, _frame: FrameType | None) -> None:
        sys.stderr.write(f"asked to stop by {signal.Signals(signum).name}\n")
        job.stop_requested.set()

    signal.signal(signal.SIGTERM, request)
    signal.signal(signal.SIGINT, request)


def _tellable(text: str) -> str:
    """`text` so that it can travel: valid UTF-8 (names of files may be none), its middle cut out when it is over-long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    half = _MESSAGE_LIMIT // 2
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:half]} … {text[-half:]}"


def _fail(job: JobContext, info: ErrorInfo, exit_code: int) -> int:
    covered = job.redactor.redact_text
    info = msgspec.structs.replace(
        info, message=_tellable(covered(info.message)), hint=info.hint and _tellable(covered(info.hint))
    )
    job.record_failure(info)
    job.tell(Note(level="error", text=info.message))
    sys.stderr.write(f"error: {info.message}\n")
    if info.hint:
        sys.stderr.write(f"  hint: {info.hint}\n")
    return exit_code


def give_up(job: JobContext, error: RoostError) -> NoReturn:
    """End the process with `error` from a thread, where the work itself waits for something that will never come."""
    code = _fail(job, error.info, EXIT_FAILED)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(
    spec_type: type[_SpecT] | tuple[type[_SpecT], ...], work: Callable[[_SpecT, JobContext], JobResult]
) -> NoReturn:
    """Run `work` on the spec of the job in `$ROOST_JOB_DIR` and exit with what came of it."""
    # Neither a character that the host's locale lacks nor a full disk may end the work that prints.
    steady_log.install()
    directory = Path(os.environ["ROOST_JOB_DIR"])
    job = JobContext(directory, Path(os.environ["ROOST_ROOT"]))
    _request_stop_on_signals(job)
    code = _run(spec_type, work, job)
    sys.stdout.flush()
    sys.stderr.flush()
    # Worker threads of libraries (tokenizers, gloo, HTTP pools) must not keep a job alive whose result is written.
    os._exit(code)


def _run(
    spec_type: type[_SpecT] | tuple[type[_SpecT], ...], work: Callable[[_SpecT, JobContext], JobResult], job: JobContext
) -> int:
    try:
        spec = decode_spec((job.directory / "spec.json").read_bytes())
        if not isinstance(spec, spec_type):
            raise UsageError(f"this worker does not do {type(spec).__name__}")
        result = work(spec, job)
        job.record_result(result)
    except Stopped:
        sys.stderr.write("stopped\n")
        return EXIT_STOPPED
    except RoostError as error:
        return _fail(job, error.info, EXIT_PRECONDITION if isinstance(error, Conflict | Precondition) else EXIT_FAILED)
    except Exception as error:  # noqa: BLE001 - the last line of defence of a process: nothing may vanish unreported
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        return _fail(
            job, ErrorInfo(code=ErrorCode.FAILED, message=message, hint="the log has the traceback"), EXIT_FAILED
        )
    return 0
