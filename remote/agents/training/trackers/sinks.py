"""The trackers themselves, each through its own library, which is loaded only where it is used."""

import os
import time
from pathlib import Path
from typing import Any, Protocol

from remote.agents.training.trackers.figures import Figures, as_markdown
from remote.protocol.run import TrackerName, TrackersConfig


class Sink(Protocol):
    """A run of a tracker, new or taken up again; what goes wrong is whatever error its library raises."""

    place: str
    """Where a person finds it."""

    def begin(self, step: int) -> int | None:
        """`step` is the first that comes now: the newest step that the tracker has and keeps, None where it cannot tell."""
        ...

    def log(self, step: int, at: float, figures: Figures) -> None:
        """Add figures of a step, told at `at` (seconds since the epoch)."""
        ...

    def finish(self, summary: dict[str, Any]) -> None:
        """Hand over what is pending; an empty summary is that of a training that did not end."""
        ...


class TensorBoard:
    """Event files in a directory of the run's own."""

    def __init__(self, directory: Path, name: str, config: dict[str, Any]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415
        from tensorboard.plugins.text.summary_v2 import text_pb  # noqa: PLC0415
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

        place = directory / "tensorboard" / name
        self.place = f"tensorboard --logdir {place.parent}"
        self._events, self._summaries, self._text = event_pb2, summary_pb2, text_pb
        self._writer = EventFileWriter(str(place), flush_secs=10)
        self._config = config

    def begin(self, step: int) -> int:
        """Readers hide what they know of `step` and later ones from here on."""
        log = self._events.SessionLog(status=self._events.SessionLog.START)
        self._add(step, time.time(), {"session_log": log})
        self._add(step, time.time(), {"summary": self._text("config", as_markdown(self._config))})
        return step - 1

    def log(self, step: int, at: float, figures: Figures) -> None:
        """One event for all figures."""
        values = [self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._add(step, at, {"summary": self._summaries.Summary(value=values)})
        self._writer.flush()

    def finish(self, summary: dict[str, Any]) -> None:
        """The summary is a text beside the configuration."""
        if summary:
            self._add(summary["steps"], time.time(), {"summary": self._text("summary", as_markdown(summary))})
        self._writer.close()

    def _add(self, step: int, at: float, content: dict[str, Any]) -> None:
        self._writer.add_event(self._events.Event(step=step, wall_time=at, **content))


class WeightsAndBiases:
    """A run of W&B, in the cloud or as files for `wandb sync`.

    Its x axis is `train/global_step`, for W&B's own steps cannot go back: a drafter may be measured after a later step was told.
    """

    _STEP = "train/global_step"

    def __init__(
        self, directory: Path, name: str, run_id: str, config: dict[str, Any], settings: TrackersConfig
    ) -> None:
        import wandb  # noqa: PLC0415

        directory.mkdir(parents=True, exist_ok=True)
        self._online = settings.wandb_mode == "online"
        self._wandb = wandb
        self._run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            name=name,
            id=run_id,
            resume="allow",
            dir=str(directory),
            mode=settings.wandb_mode,
            config=config,
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True
            ),
        )
        self._run.define_metric(self._STEP)
        self._run.define_metric("*", step_metric=self._STEP)
        self.place = str(self._run.url) if self._online else f"wandb sync {directory}/wandb/offline-run-*{run_id}"

    def begin(self, step: int) -> int | None:  # noqa: ARG002 - TensorBoard's to know
        """The service knows; files that were not sent do not."""
        return int(self._run.summary.get(self._STEP) or 0) if self._online else None

    def log(self, step: int, at: float, figures: Figures) -> None:  # noqa: ARG002 - it takes the time itself
        """A row of the run's history."""
        self._run.log({self._STEP: step, **figures})

    def finish(self, summary: dict[str, Any]) -> None:
        """Without a summary the run counts as failed there until it is taken up again."""
        self._run.summary.update(summary)
        self._run.finish(exit_code=0 if summary else 1)
        self._wandb.teardown()


class Trackio:
    """A run of trackio, in a database below `directory`, or where the host's `TRACKIO_DIR` or `TRACKIO_SPACE_ID` says."""

    def __init__(self, directory: Path, name: str, config: dict[str, Any], settings: TrackersConfig) -> None:
        place = os.environ.setdefault("TRACKIO_DIR", str(directory / "trackio"))
        import trackio  # noqa: PLC0415 - it reads TRACKIO_DIR when it is loaded

        self.place = f"TRACKIO_DIR={place} trackio show --project {settings.project}"
        self._key = (settings.project, name)
        self._run = trackio.init(
            project=settings.project,
            name=name,
            resume="allow",
            config=config,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def begin(self, step: int) -> int | None:  # noqa: ARG002 - as above
        """No public call tells it; this is what the library asks itself."""
        from trackio.sqlite_storage import SQLiteStorage  # noqa: PLC0415

        return SQLiteStorage.get_max_step_for_run(*self._key)

    def log(self, step: int, at: float, figures: Figures) -> None:  # noqa: ARG002 - it takes the time itself
        """A row of the run's metrics."""
        self._run.log(dict(figures), step=step)

    def finish(self, summary: dict[str, Any]) -> None:
        """The summary's numbers are metrics of the last step: trackio has no other place for them."""
        numbers = {f"summary/{name}": value for name, value in summary.items() if isinstance(value, int | float)}
        if numbers:
            self._run.log(numbers, step=summary["steps"])
        self._run.finish()


def open_sink(
    tracker: TrackerName, directory: Path, name: str, run_id: str, config: dict[str, Any], settings: TrackersConfig
) -> Sink:
    """The run `name` of a tracker whose files lie below `directory`; `run_id` is one that no other run has."""
    match tracker:
        case "tensorboard":
            return TensorBoard(directory, name, config)
        case "wandb":
            return WeightsAndBiases(directory, name, run_id, config, settings)
        case "trackio":
            return Trackio(directory, name, config, settings)
