"""What the agents tell while they work; every event is a record with a sequence number in the job's `progress.jsonl`."""

from typing import Literal

from remote.protocol.base import Message

StageName = Literal["preflight", "server", "extraction", "vocabulary", "training", "serving", "evaluation", "verdict"]
"""The stages of a run, in their order."""

STAGES: tuple[StageName, ...] = (
    "preflight",
    "server",
    "extraction",
    "vocabulary",
    "training",
    "serving",
    "evaluation",
    "verdict",
)


class StagePending(Message, frozen=True, kw_only=True):
    """Not begun; `bytes_to_write` is what the plan expects of it, None where nothing is known."""

    bytes_to_write: int | None = None


class StageRunning(Message, frozen=True, kw_only=True):
    """At work since `since`; `fraction` and `eta_s` are None while unknown."""

    since: float
    job_id: str | None = None
    fraction: float | None = None
    eta_s: float | None = None
    detail: str = ""


class StageDone(Message, frozen=True, kw_only=True):
    """Finished with a verified result."""

    started_at: float
    ended_at: float
    detail: str = ""


class StageSkipped(Message, frozen=True, kw_only=True):
    """A valid result for the same inputs was there already."""

    detail: str = ""


class StageFailed(Message, frozen=True, kw_only=True):
    """It stopped the run; `reason` says what, where and what to do next."""

    started_at: float
    ended_at: float
    reason: str


StageState = StagePending | StageRunning | StageDone | StageSkipped | StageFailed


class StageChanged(Message, frozen=True, kw_only=True):
    """A stage of a run entered another state or moved on within it."""

    stage: StageName
    state: StageState


class ServerPhase(Message, frozen=True, kw_only=True):
    """Where the launch of a server stands; seconds since its start."""

    phase: Literal["launching", "loading_weights", "capturing_graphs", "warming_up", "stopping"]
    elapsed_s: float


class ServerReady(Message, frozen=True, kw_only=True):
    """The server answers at `url` (loopback), after so many `restarts` of an engine that died."""

    url: str
    engine: str
    engine_version: str
    model: str
    pid: int
    startup_s: float
    restarts: int = 0


class ServerRestarting(Message, frozen=True, kw_only=True):
    """The engine died while it served, for `reason`, and is launched again in `pause_s`: `restart` of `most` in a row."""

    reason: str
    restart: int
    most: int
    pause_s: float


class QuarantineReason(Message, frozen=True, kw_only=True):
    """How many samples are quarantined for the same reason; a number in it that differs between them is "…"."""

    reason: str
    samples: int


class ExtractionAdvanced(Message, frozen=True, kw_only=True):
    """Samples and tokens that were checked and kept, and the rate of the last minute.

    Of their bytes some are safely in the store and some lie in a shard that is not whole yet. `quarantined` are all that the store
    will lack, those that could not be sent too, the 20 most frequent `reasons` first; `samples_total` and `tokens_total` count
    without them; `eta_s` is None while unknown.
    """

    samples_done: int
    samples_total: int
    tokens_done: int
    bytes_written: int
    tokens_per_s: float
    bytes_pending: int = 0
    tokens_total: int = 0
    bytes_total: int = 0
    quarantined: int = 0
    eta_s: float | None = None
    reasons: list[QuarantineReason] = []


class ExtractionPlanned(Message, frozen=True, kw_only=True):
    """What an extraction will write, known before its first byte: exact sizes, the share of tokens that counts for the loss, and
    the beginning of a sample as text, what counts between ⟦ and ⟧.

    `bytes_needed` and `inodes_needed` are what is still to be written, `bytes_free` and `inodes_free` what the disk has, of which
    `keep_free_bytes` are to be left. `unfit`
    conversations cannot be used, the first 20 of them with the reason in `unfit_samples`; `cut` have a beginning only.
    """

    samples: int
    tokens: int
    loss_tokens: int
    shards: int
    bytes_total: int
    bytes_needed: int
    inodes_needed: int
    bytes_free: int
    inodes_free: int | None
    unfit: int
    sample_id: str
    sample_text: str
    unfit_samples: "list[SampleQuarantined]" = []
    cut: int = 0
    keep_free_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether the disk has room for what is still to be written."""
        has_inodes = self.inodes_free is None or self.inodes_free >= self.inodes_needed
        return has_inodes and self.bytes_free >= self.bytes_needed + self.keep_free_bytes


class SampleQuarantined(Message, frozen=True, kw_only=True):
    """A sample that will not be in the store, and why."""

    sample_id: str
    reason: str


class StoreChecked(Message, frozen=True, kw_only=True):
    """How far the verification of a store is with its bytes, its samples, or those that are captured once more."""

    what: Literal["bytes", "samples", "recaptured"]
    done: int
    total: int


class ShardWritten(Message, frozen=True, kw_only=True):
    """A shard is complete, hashed and in the manifest."""

    shard: str
    samples: int
    tokens: int
    bytes: int


class MappingBuilt(Message, frozen=True, kw_only=True):
    """A mapping was built or copied, and passed validation."""

    draft_vocab_size: int
    target_vocab_size: int
    coverage: float | None


class FilesCopied(Message, frozen=True, kw_only=True):
    """Bytes of a safe copy that are on disk."""

    bytes_done: int
    bytes_total: int


class FilesRemoved(Message, frozen=True, kw_only=True):
    """Files of the trash that are gone for good, and the bytes that came free."""

    files_done: int
    files_total: int
    bytes_freed: int


class StepLogged(Message, frozen=True, kw_only=True):
    """A training step: loss, and the accuracy and the loss (not weighted) of each draft position (index 0 = first drafted token).

    A loss or norm of None is one that is not finite: JSON has neither NaN nor infinity. `acceptance_length` is what the accuracies
    give, 1 + a0 + a0 * a1 + …: tokens a verification on the text that is trained on, the bonus token included. `memory_bytes` is the
    first rank's peak: of its device, or of the process on a CPU.
    """

    step: int
    total_steps: int
    loss: float | None
    accuracy: list[float]
    learning_rate: float
    gradient_norm: float | None
    tokens_per_s: float
    input_wait_fraction: float
    losses: list[float] = []
    acceptance_length: float | None = None
    memory_bytes: int | None = None
    eta_s: float | None = None


class DrafterMeasured(Message, frozen=True, kw_only=True):
    """The drafter of a step, walked along `tokens` of validation text: tokens a verification (the bonus token included) with as many
    proposals as there are entries in `accuracy`, which is that of each draft position; `best` when no checkpoint did better.
    """

    step: int
    acceptance_length: float
    accuracy: list[float]
    tokens: int
    best: bool


class CheckpointSaved(Message, frozen=True, kw_only=True):
    """A checkpoint that training can resume from."""

    step: int
    path: str
    bytes: int


class TrainingPhase(Message, frozen=True, kw_only=True):
    """What the training does from now on: between steps it may save, measure and export, and then no step is due."""

    phase: Literal["step", "checkpoint", "measurement", "export"]


class ArmAdvanced(Message, frozen=True, kw_only=True):
    """How far the evaluation of one arm is: prompts over all levels, figures over those done at the present level."""

    arm: Literal["baseline", "drafter"]
    prompts_done: int
    prompts_total: int
    decode_tokens_per_s: float | None
    acceptance_length: float | None
    concurrency: int = 1


class BenchmarkAdvanced(Message, frozen=True, kw_only=True):
    """How far a benchmark is: requests over all levels, and the whole server's rate at the present level so far."""

    concurrency: int
    requests_done: int
    requests_total: int
    output_tokens_per_s: float | None


TrialState = Literal["launching", "measuring", "measured", "known", "failed"]
"""Where one trial of a tuning stands in a round; known means measured by an earlier job."""


class TrialAdvanced(Message, frozen=True, kw_only=True):
    """Where a tuning stands: `launch` of `launches` servers, in `round` of `rounds`; the figures of a trial that was measured.

    `settings` are those of the trial in words; `speedup` is against the settings of the run file in the same round.
    """

    launch: int
    launches: int
    round: int
    rounds: int
    settings: str
    state: TrialState
    tokens_per_s: float | None = None
    speedup: float | None = None
    reason: str = ""


class Note(Message, frozen=True, kw_only=True):
    """A sentence worth showing."""

    level: Literal["info", "warning", "error"]
    text: str


Progress = (
    StageChanged
    | ServerPhase
    | ServerReady
    | ServerRestarting
    | ExtractionAdvanced
    | ExtractionPlanned
    | SampleQuarantined
    | StoreChecked
    | ShardWritten
    | MappingBuilt
    | FilesCopied
    | FilesRemoved
    | StepLogged
    | DrafterMeasured
    | CheckpointSaved
    | TrainingPhase
    | ArmAdvanced
    | BenchmarkAdvanced
    | TrialAdvanced
    | Note
)


class ProgressRecord(Message, frozen=True, kw_only=True):
    """A progress event with its place in the job's stream: `seq` counts from 1 without gaps."""

    seq: int
    at: float
    event: Progress
