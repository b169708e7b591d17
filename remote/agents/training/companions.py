"""The other ranks of a training: started by the first, watched by it, and gone when it is.

A process of another rank: `python -m remote.agents.training.companions`, with `$ROOST_RANK` beside the job's environment.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from remote.agents.harness import JobContext, give_up
from remote.agents.training.loop import follow
from remote.agents.training.ranks import Ranks
from remote.errors import UsageError, WorkFailed
from remote.protocol.codec import decode_spec
from remote.protocol.specs import TrainingSpec

_RANK = "ROOST_RANK"
_POLL_S = 0.5
_GRACE_S = 30.0
"""A rank that lost another notices by itself over gloo; over NCCL it would wait for ever."""


def _rendezvous(directory: Path) -> Path:
    return directory / "rendezvous"


@contextlib.contextmanager
def companions(spec: TrainingSpec, job: JobContext) -> Iterator[Ranks]:
    """This process as the first of the ranks that `spec` asks for, the others started; WorkFailed names one that is lost."""
    ranks = Ranks.of(spec.training, 0)
    if ranks.count == 1:
        yield ranks
        return
    rendezvous = _rendezvous(job.directory)
    rendezvous.unlink(missing_ok=True)
    others = _Others(job, ranks.local_count)
    try:
        ranks.meet(rendezvous, spec.training)
        yield ranks
        others.wait()
    except RuntimeError as error:
        lost = others.lost_one()
        if lost is None and spec.training.hosts.count > 1:
            lost = WorkFailed(
                f"the ranks of another host were lost: {error}",
                hint="look at the training's job there; start both again to go on from the last checkpoint",
            )
        if lost is None:
            raise
        raise lost from error
    finally:
        others.end()


class _Others:
    """The processes of the ranks after the first."""

    def __init__(self, job: JobContext, count: int) -> None:
        self._job = job
        self._ended = threading.Event()
        command = [sys.executable, "-m", "remote.agents.training.companions"]
        self._processes = [
            subprocess.Popen(command, env=os.environ | {_RANK: str(rank)}, stdin=subprocess.DEVNULL)
            for rank in range(1, count)
        ]
        threading.Thread(target=self._watch, name="companions", daemon=True).start()

    def lost_one(self) -> WorkFailed | None:
        """What to say of the first rank that ended with a failure."""
        deadline = time.monotonic() + _POLL_S
        while time.monotonic() < deadline:
            for rank, process in enumerate(self._processes, 1):
                if process.poll():
                    how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit {process.returncode}"
                    return WorkFailed(
                        f"rank {rank} of {len(self._processes) + 1} ended ({how})",
                        hint="the log has its last words; start the run again to go on from the last checkpoint",
                    )
            time.sleep(_POLL_S / 10)
        return None

    def wait(self) -> None:
        """Wait for all to end; raises WorkFailed for one that fails."""
        for process in self._processes:
            process.wait()
        if (lost := self.lost_one()) is not None:
            raise lost

    def end(self) -> None:
        """Leave none behind."""
        self._ended.set()
        for process in self._processes:
            process.kill()
            process.wait()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_S):
            lost = self.lost_one()
            if lost is not None and not self._ended.wait(_GRACE_S):
                for process in self._processes:
                    process.kill()
                give_up(self._job, lost)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


def main() -> NoReturn:
    """Train as one of the ranks after the first, which alone hears a request to stop."""
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    directory = Path(os.environ["ROOST_JOB_DIR"])
    spec = decode_spec((directory / "spec.json").read_bytes())
    if not isinstance(spec, TrainingSpec):
        raise UsageError(f"a rank of a training does not do {type(spec).__name__}")
    ranks = Ranks.of(spec.training, int(os.environ[_RANK]))
    ranks.meet(_rendezvous(directory), spec.training)
    follow(spec, ranks)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
