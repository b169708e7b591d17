"""What a run still has to write, from the plan of its stages and what its jobs say of themselves; pure."""

from collections.abc import Mapping

from remote.protocol.progress import Progress, StageChanged, StageName, StagePending, StageRunning, StageState


class RunNeed:
    """Folds the stages of one run; what nothing is known of counts as nothing."""

    def __init__(self) -> None:
        self._planned: dict[StageName, int] = {}
        self._states: dict[StageName, StageState] = {}

    def take(self, event: Progress) -> None:
        """The run's next event."""
        if isinstance(event, StageChanged):
            self._states[event.stage] = event.state
            if isinstance(event.state, StagePending) and event.state.bytes_to_write is not None:
                self._planned[event.stage] = event.state.bytes_to_write

    def bytes_left(self, jobs: Mapping[str, int | None]) -> int | None:
        """Of all stages to come, and of the one at work by its job's own word; None for a run that told no plan."""
        if not self._planned:
            return None
        return sum(self._left(stage, planned, jobs) for stage, planned in self._planned.items())

    def _left(self, stage: StageName, planned: int, jobs: Mapping[str, int | None]) -> int:
        match self._states[stage]:
            case StagePending():
                return planned
            case StageRunning(job_id=job_id, fraction=fraction):
                own = None if job_id is None else jobs.get(job_id)
                return round(planned * (1.0 - (fraction or 0.0))) if own is None else own
            case _:
                return 0
