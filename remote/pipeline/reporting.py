"""What a run tells about its stages."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from remote.agents.harness import Stopped
from remote.errors import RoostError
from remote.pipeline.children import Seen
from remote.pipeline.progress import Alive, StageProgress, judge_child
from remote.protocol.progress import (
    Note,
    Progress,
    StageChanged,
    StageDone,
    StageFailed,
    StageName,
    StagePending,
    StageRunning,
    StageSkipped,
    StageState,
)

Tell = Callable[[Progress], None]


class RunningStage:
    """A stage at work: turns what its jobs tell into what the run tells."""

    def __init__(self, stage: StageName, tell: Tell) -> None:
        self._stage: StageName = stage
        self._tell = tell
        self._progress = StageProgress(time.time())
        self._flush()

    @property
    def state(self) -> StageRunning:
        """Where the stage stands."""
        return self._progress.state

    def enter(self, job_id: str, share: tuple[float, float] = (0.0, 1.0)) -> None:
        """The next job of the stage begins; it covers `share` of the stage."""
        self._progress.enter(job_id, share)
        self._flush()

    def see(self, seen: Seen) -> None:
        """One look at the stage's present job."""
        for event in seen.events:
            self._progress.take(event, time.time())
            if isinstance(event, Note) and event.level != "info":
                self._tell(msgspec.structs.replace(event, text=f"{seen.job.job_id}: {event.text}"))
        meaning = judge_child(seen.job.state)
        self._progress.warn(meaning.trouble if isinstance(meaning, Alive) else "")
        self._flush()

    def say(self, detail: str) -> None:
        """What the stage does or found, in words."""
        self._progress.warn(detail)
        self._flush()

    def _flush(self) -> None:
        state = self._progress.to_tell(time.time())
        if state is not None:
            self._tell(StageChanged(stage=self._stage, state=state))


class Reporter:
    """Tells the states of the stages, each exactly once when it ends."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def expect(self, stage: StageName, bytes_to_write: int | None) -> None:
        """What the plan expects of a stage that is still to come."""
        self._tell(StageChanged(stage=stage, state=StagePending(bytes_to_write=bytes_to_write)))

    def skip(self, stage: StageName, detail: str) -> None:
        """The stage has nothing to do."""
        self._change(stage, StageSkipped(detail=detail))

    def note(self, text: str) -> None:
        """A sentence worth showing."""
        _log(text)
        self._tell(Note(level="info", text=text))

    def warn(self, text: str) -> None:
        """A sentence that a person should act on."""
        _log(f"warning: {text}")
        self._tell(Note(level="warning", text=text))

    @contextmanager
    def at_work(self, stage: StageName) -> Iterator[RunningStage]:
        """The stage works while this is open; an error that leaves it makes it failed."""
        _log(f"{stage} begins")
        running = RunningStage(stage, self._tell)
        since = running.state.since
        try:
            yield running
        except BaseException as error:
            reason = str(error) if isinstance(error, (RoostError, Stopped)) else f"{type(error).__name__}: {error}"
            self._change(stage, StageFailed(started_at=since, ended_at=time.time(), reason=reason))
            raise
        self._change(stage, StageDone(started_at=since, ended_at=time.time(), detail=running.state.detail))

    def _change(self, stage: StageName, state: StageState) -> None:
        _log(f"{stage} {_ending(state)}")
        self._tell(StageChanged(stage=stage, state=state))


def _ending(state: StageState) -> str:
    match state:
        case StageDone(started_at=start, ended_at=end, detail=detail):
            return f"is done after {end - start:.0f} s" + (f": {detail}" if detail else "")
        case StageSkipped(detail=detail):
            return f"is skipped: {detail}"
        case StageFailed(reason=reason):
            return f"failed: {reason}"
        case _:
            return "goes on"


def _log(sentence: str) -> None:
    """The run's own log: what a person reads afterwards."""
    sys.stdout.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {sentence}\n")
    sys.stdout.flush()
