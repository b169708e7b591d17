"""The plan of a tuning, and what it found."""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.run import FlagValue, RunConfig

Settings = dict[str, FlagValue]
"""Keys of the run file with their values."""


class TrialPlan(Message, frozen=True, kw_only=True):
    """One combination, by its number; 0 is what the run file has. One with a `problem` is not launched.

    One that `recaptures` is of the engine that captures the hidden states, too: applied, it makes the next run make the store, the
    mapping and the drafter anew.
    """

    number: int
    settings: Settings
    command: list[str]
    environment: dict[str, str]
    problem: str | None
    recaptures: bool = False


class TuningRound(Message, frozen=True, kw_only=True):
    """So many trials beside number 0, each asked so many prompts."""

    trials: int
    prompts: int


class TuningPlan(Message, frozen=True, kw_only=True):
    """A tuning resolved against this host. `launches` and `requests` are over all rounds, when none fails."""

    run: RunConfig
    directory: str
    trials: list[TrialPlan]
    rounds: list[TuningRound]
    launches: int
    requests: int
    problems: list[str]


class TrialMeasurement(Message, frozen=True, kw_only=True):
    """A trial in one round: its rate by the tuning's objective, and its ratio to number 0 in the same round.

    The interval is a 95% bootstrap, paired by prompt. `odd` counts answers that are empty or repeat themselves.
    """

    round: int
    prompts: int
    tokens_per_s: float
    speedup: float
    speedup_interval: tuple[float, float]
    acceptance_length: float | None
    odd: int
    requests: int
    server_job_id: str
    benchmark_job_id: str


TrialOutcome = Literal["present", "refused", "failed", "dropped", "finalist"]
"""Present is number 0: the settings that the run file has."""


class TrialReport(Message, frozen=True, kw_only=True):
    """A trial to its end; `reason` says why it was refused, failed or dropped, `recaptures` is as in `TrialPlan`."""

    number: int
    settings: Settings
    command: list[str]
    environment: dict[str, str]
    outcome: TrialOutcome
    measurements: list[TrialMeasurement]
    reason: str
    recaptures: bool = False


class TuningReport(Message, frozen=True, kw_only=True):
    """Number 0, then every trial, the best of the last round first. `winner` is the number of the one that is surely faster than number 0.

    `drift` is how far number 0, measured at the beginning and at the end of the last round, was from itself.
    """

    run: RunConfig
    measured_at: float
    host_name: str
    devices: list[str]
    engine: str
    engine_version: str
    prompts_sha256: str
    trials: list[TrialReport]
    winner: int | None
    drift: float | None
    reason: str
