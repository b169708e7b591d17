"""The process that feeds one tracker: `python -m remote.agents.training.trackers.process TRACKER`, started by `feeding`.

It reads the job's own progress file, so that the training neither waits for a tracker nor notices its failure. On standard output it
says notes, one a line, that the training is to tell; standard input ends with the training, with its summary as JSON where there is one.
"""

import json
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from remote.agents.training.trackers.figures import LABELS, config_of, figures_of
from remote.agents.training.trackers.sinks import Sink, open_sink
from remote.artifacts.atomic import write_atomic
from remote.errors import UsageError
from remote.protocol.codec import decode_progress_record, decode_spec
from remote.protocol.progress import DrafterMeasured, Note, ProgressRecord, StepLogged
from remote.protocol.run import TrackerName
from remote.protocol.specs import TrainingSpec

_POLL_S = 1.0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The tracker's run that a training has, kept beside its checkpoints, and the newest steps that were handed over."""

    fingerprint: str
    name: str
    run_id: str
    step: int = 0
    measured: int = 0


class Feeder:
    """Hands a training's figures to a sink, each step once however often the training was resumed."""

    def __init__(self, sink: Sink, place: Place, path: Path) -> None:
        self._sink = sink
        self._place = place
        self._path = path
        self._begun = False
        self._keep()

    def take(self, record: ProgressRecord) -> None:
        """Hand over what is a figure and is not there yet."""
        event = record.event
        if not isinstance(event, StepLogged | DrafterMeasured):
            return
        is_step = isinstance(event, StepLogged)
        if not self._begun:
            # A drafter is measured after its step, so the next step to come is a later one.
            self._begin(event.step if is_step else event.step + 1)
        if event.step <= (self._place.step if is_step else self._place.measured):
            return
        self._sink.log(event.step, record.at, figures_of(event))
        changed = {"step" if is_step else "measured": event.step}
        self._place = msgspec.structs.replace(self._place, **changed)
        self._keep()

    def _begin(self, first: int) -> None:
        self._begun = True
        there = self._sink.begin(first)
        if there is not None:
            measured = min(self._place.measured, there)
            self._place = msgspec.structs.replace(self._place, step=there, measured=measured)

    def _keep(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self._path, msgspec.json.encode(self._place))


def place_of(path: Path, fingerprint: str, job_id: str) -> Place:
    """The run that the training with `fingerprint` has already, else a new one that is called like its job."""
    try:
        known = msgspec.json.decode(path.read_bytes(), type=Place)
    except (OSError, msgspec.DecodeError):
        known = None
    if known is not None and known.fingerprint == fingerprint:
        return known
    return Place(fingerprint=fingerprint, name=job_id, run_id=secrets.token_hex(6))


class _Progress:
    """The records of a progress file as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[ProgressRecord]:
        """Those that are new, as far as they are whole."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        yield from map(decode_progress_record, whole.splitlines())


class _Training:
    """The training at the other end of standard input."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.summary: dict[str, Any] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        data = sys.stdin.buffer.read()
        self.summary = json.loads(data) if data else {}
        self.over.set()


def tracker_directory(spec: TrainingSpec) -> Path:
    """Where the trackers of a training keep files."""
    directory = spec.training.trackers.directory
    return Path(spec.checkpoints).parent / "trackers" if directory is None else Path(directory)


def _feed(tracker: TrackerName, spec: TrainingSpec, job: Path, say: "_Notes") -> None:
    path = Path(spec.checkpoints) / f"{tracker}.json"
    place = place_of(path, spec.fingerprint, job.name)
    training, progress = _Training(), _Progress(job / "progress.jsonl")
    sink = open_sink(
        tracker, tracker_directory(spec), place.name, place.run_id, config_of(spec), spec.training.trackers
    )
    say(Note(level="info", text=f"{LABELS[tracker]} follows as {place.name}: {sink.place}"))
    feeder, over = Feeder(sink, place, path), False
    while not over:
        over = training.over.wait(_POLL_S)
        for record in progress.read():
            feeder.take(record)
    sink.finish(training.summary)


class _Notes:
    """The real standard output; what libraries print goes into the job's log instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def __call__(self, note: Note) -> None:
        self._out.write(msgspec.json.encode(note) + b"\n")


def main() -> NoReturn:
    """Feed the tracker until the training is over."""
    for signum in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # a stop is the training's to hear, whose last words are still to come
        signal.signal(signum, signal.SIG_IGN)
    say, job = _Notes(), Path(os.environ["ROOST_JOB_DIR"])
    tracker = msgspec.convert(sys.argv[1], TrackerName)
    code = 0
    try:
        spec = decode_spec((job / "spec.json").read_bytes())
        if not isinstance(spec, TrainingSpec):
            raise UsageError(f"{type(spec).__name__} is no training")
        _feed(tracker, spec, job, say)
    except Exception as error:  # noqa: BLE001 - whatever a tracker's library raises is told, and ends nothing but this process
        reason = str(error).strip().partition("\n")[0]
        words = f"{LABELS[tracker]} is told no more, the training goes on without it: {type(error).__name__}: {reason}"
        say(Note(level="warning", text=words))
        code = 1
    sys.stderr.flush()
    os._exit(code)  # threads of libraries may wait for a network that is not there


if __name__ == "__main__":
    main()
