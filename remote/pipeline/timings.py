"""Where the time of a job went, from what it told while it worked: the parts that grow with the work, and the rest; pure."""

from collections.abc import Sequence
from typing import NamedTuple

from remote.protocol.progress import (
    ArmAdvanced,
    ExtractionAdvanced,
    ExtractionPlanned,
    ProgressRecord,
    StepLogged,
    TrainingPhase,
)

_FIRST_STEPS = 2
"""Steps that also warm caches and allocators; they are not like the others and count with the rest."""


class Span(NamedTuple):
    """When a job began and ended, seconds since the epoch."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0.0, self.ended - self.began)


class Extraction(NamedTuple):
    """`tokens` that were captured in so many `seconds`, of `tokens_total` in the whole store; more than those of this job where it
    went on with a store that was begun.
    """

    tokens: int
    tokens_total: int
    seconds: float


class Training(NamedTuple):
    """`steps` are seconds of single steps, `save_s` and `measure_s` of a checkpoint and of its measurement; `rest_s` is everything else."""

    steps: list[float]
    save_s: float
    measure_s: float
    rest_s: float


class Evaluation(NamedTuple):
    """`asked_s` are the seconds in which `prompts` were answered, over all levels."""

    prompts: int
    asked_s: float


def time_extraction(records: Sequence[ProgressRecord]) -> Extraction | None:
    """None where it captured nothing that can be timed, as when all was there."""
    first: tuple[float, int] | None = None
    last: tuple[float, int, int] | None = None
    for record in records:
        match record.event:
            case ExtractionPlanned(bytes_needed=needed, bytes_total=total) if needed >= total:
                first = (record.at, 0)
            case ExtractionAdvanced(tokens_done=done, tokens_total=total):
                first = first or (record.at, done)
                last = (record.at, done, total)
            case _:
                pass
    if first is None or last is None or last[1] <= first[1] or last[0] <= first[0]:
        return None
    return Extraction(last[1] - first[1], last[2], last[0] - first[0])


def time_training(span: Span, records: Sequence[ProgressRecord]) -> Training | None:
    """None where it logged too few steps to time one."""
    steps: list[float] = []
    saves: list[float] = []
    measures: list[float] = []
    last: tuple[float, int] | None = None
    phase: tuple[str, float] | None = None
    step = 0
    for record in records:
        match record.event:
            case StepLogged(step=step):
                if last is not None and step > last[1] and record.at > last[0]:
                    steps += [(record.at - last[0]) / (step - last[1])] * (step - last[1])
                last = (record.at, step)
            case TrainingPhase(phase=begun):
                if phase is not None and phase[0] in ("checkpoint", "measurement"):
                    (saves if phase[0] == "checkpoint" else measures).append(record.at - phase[1])
                phase = (begun, record.at)
                last = (record.at, step) if begun == "step" else None
            case _:
                pass
    steps = steps[_FIRST_STEPS:]
    if not steps:
        return None
    timed = sum(steps) + sum(saves) + sum(measures)
    return Training(steps, _mean(saves), _mean(measures), max(0.0, span.seconds - timed))


def time_evaluation(records: Sequence[ProgressRecord]) -> Evaluation | None:
    """None where no prompt was answered. The first prompt's time is with the rest, and so does not count twice."""
    told = [(record.at, record.event.prompts_done) for record in records if isinstance(record.event, ArmAdvanced)]
    if len(told) < 2 or told[-1][1] <= told[0][1]:
        return None
    return Evaluation(told[-1][1] - told[0][1], told[-1][0] - told[0][0])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
