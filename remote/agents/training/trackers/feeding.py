"""The training's end of its trackers: it starts their processes, passes on what they say, and gives them a last word."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from remote.agents.harness import JobContext
from remote.agents.training.publishing import Summary
from remote.agents.training.trackers.figures import LABELS
from remote.protocol.progress import Note
from remote.protocol.run import TrackerName
from remote.protocol.specs import TrainingSpec

_PATIENCE_S = 60.0
_PATIENCE_STOPPED_S = 10.0
"""How long trackers may take to hand over what is pending: a job that was asked to stop is killed after 30 s."""


@contextlib.contextmanager
def feeding(spec: TrainingSpec, job: JobContext) -> Iterator[Summary]:
    """Have the trackers of `spec` follow the job; the training fills the summary that is yielded, empty where it did not end."""
    summary: Summary = {}
    # Over several hosts the first one alone tells.
    names = spec.training.trackers.use if spec.training.hosts.number == 0 else []
    trackers = [_Tracker(name, job) for name in dict.fromkeys(names)]
    try:
        yield summary
    finally:
        for tracker in trackers:
            tracker.end(summary)
        deadline = time.monotonic() + (_PATIENCE_STOPPED_S if job.stop_requested.is_set() else _PATIENCE_S)
        for tracker in trackers:
            tracker.wait(deadline)


class _Tracker:
    """One tracker's process."""

    def __init__(self, name: TrackerName, job: JobContext) -> None:
        self._label = LABELS[name]
        self._job = job
        self._warned = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "remote.agents.training.trackers.process", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def end(self, summary: Summary) -> None:
        """Say that the training is over."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(summary).encode() if summary else b"")
            self._process.stdin.close()

    def wait(self, deadline: float) -> None:
        """Wait for its last words; one that has none by `deadline` is killed."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(max(1.0, deadline - time.monotonic()))

    def _listen(self) -> None:
        """Tell what it says, and once that it is gone where it did not say so itself."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            note = msgspec.json.decode(line, type=Note)
            self._warned |= note.level == "warning"
            self._job.tell(note)
        code = self._process.wait()
        if code != 0 and not self._warned:
            how = f"signal {-code}" if code < 0 else f"exit {code}"
            words = f"{self._label} is told no more, the training goes on without it: its process ended ({how})"
            self._job.tell(Note(level="warning", text=words))
