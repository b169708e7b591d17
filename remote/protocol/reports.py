"""Results that people read: validation of a mapping, the evaluation of an arm, the verdict, the plan of a run."""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.jobs import Job
from remote.protocol.mappings import MappingLayout
from remote.protocol.progress import (
    ExtractionAdvanced,
    ExtractionPlanned,
    QuarantineReason,
    SampleQuarantined,
    StageName,
)
from remote.protocol.run import RunConfig
from remote.protocol.specs import Arm, ExtractionSpec, ServerSpec, TrainingSpec


class Finding(Message, frozen=True, kw_only=True):
    """One thing that validation found; `code` is stable, `fix` says what to do."""

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    fix: str


class MappedFile(Message, frozen=True, kw_only=True):
    """A file of a mapping as it lies on disk."""

    name: str
    bytes: int
    sha256: str


class MappingReport(Message, frozen=True, kw_only=True):
    """The state of a mapping; `valid` means no finding of severity error, `against` names what it was compared with besides."""

    path: str
    valid: bool
    findings: list[Finding]
    files: list[MappedFile]
    draft_vocab_size: int | None
    target_vocab_size: int | None
    coverage: float | None
    provenance: Literal["roost", "foreign"]
    layout: MappingLayout = "roost"
    against: list[str] = []


class MappingUse(Message, frozen=True, kw_only=True):
    """Something on the host with the same draft vocabulary: another copy, a drafter, or a run that names it as its source."""

    kind: Literal["mapping", "drafter", "run"]
    path: str


class MappingInspection(Message, frozen=True, kw_only=True):
    """A mapping in full: its report, what its metadata and its manifest say, the range of its tokens, who else has it, the
    backups that copies over it left beside it, and the counts that it was built from.
    """

    report: MappingReport
    meta: dict[str, str]
    producer: str | None
    created_at: float | None
    inputs: dict[str, str]
    lowest_id: int | None
    highest_id: int | None
    special_tokens: int | None
    special_covered: int | None
    used_by: list[MappingUse]
    backups: list[str]
    counts: str | None


class PromptResult(Message, frozen=True, kw_only=True):
    """One prompt of an evaluation. `decode_tokens_per_s` = (out - 1) / (end to end - time to first token), None for one token.

    `accepted_drafts[n]` counts the verifications that accepted n proposals; empty where the engine does not tell.
    """

    prompt_id: str
    category: str | None
    input_tokens: int
    output_ids: list[int]
    output_text: str
    time_to_first_token_s: float
    end_to_end_s: float
    decode_tokens_per_s: float | None
    verify_calls: int | None
    acceptance_length: float | None
    accepted_drafts: list[int]


class Divergence(Message, frozen=True, kw_only=True):
    """Where the two arms' greedy outputs part; a gap under the bound is a near-tie and counts as equal."""

    concurrency: int
    prompt_id: str
    position: int
    token_baseline: int
    token_drafter: int
    top_two_logit_gap: float
    near_tie: bool


class ArmLevel(Message, frozen=True, kw_only=True):
    """One arm with so many requests at a time.

    `decode_tokens_per_s` is the token-weighted rate of one request, `output_tokens_per_s` that of the whole server over
    `seconds`; acceptance is weighted by verifications, the bonus token included. `others_cores` is how many cores other processes
    than the server's and the measurement's own kept busy meanwhile, None where that is not known.
    """

    concurrency: int
    prompts: list[PromptResult]
    seconds: float
    decode_tokens_per_s: float
    end_to_end_tokens_per_s: float
    output_tokens_per_s: float
    acceptance_length: float | None
    others_cores: float | None = None


class EvaluationReport(Message, frozen=True, kw_only=True):
    """One arm, level by level; `compared_outputs` counts the pairs of outputs that were held against the other arm's.

    `cores` is how many the host has.
    """

    arm: Arm
    model: str
    drafter: str | None
    engine: str
    engine_version: str
    dtype: str
    attention_backend: str | None
    host_name: str
    devices: list[str]
    measured_at: float
    levels: list[ArmLevel]
    compared_outputs: int
    divergences: list[Divergence]
    fingerprint: str
    cores: int | None = None


Decision = Literal["promote", "reject", "inconclusive"]


class LevelVerdict(Message, frozen=True, kw_only=True):
    """Both arms with so many requests at a time; see `ArmLevel` for the rates, first-token times are medians. One that does not
    `count` was measured to be seen.

    `speedup_interval` is a 95% bootstrap, paired by prompt. `step_cost` is the time of a verification with its drafts in plain
    decoding steps: the acceptance length at which the drafter begins to help. `…_others_cores` as in `ArmLevel`: where they
    differ much (`disturbed`), the arms were not measured alike and the level decides nothing.
    """

    concurrency: int
    counts: bool
    decision: Decision
    baseline_tokens_per_s: float
    drafter_tokens_per_s: float
    speedup: float
    speedup_interval: tuple[float, float]
    baseline_output_tokens_per_s: float
    drafter_output_tokens_per_s: float
    baseline_first_token_s: float
    drafter_first_token_s: float
    acceptance_length: float
    step_cost: float
    baseline_others_cores: float | None = None
    drafter_others_cores: float | None = None
    disturbed: bool = False


class CategoryAcceptance(Message, frozen=True, kw_only=True):
    """The acceptance length over the prompts of one category, weighted by verifications, the bonus token included."""

    category: str
    prompts: int
    verifications: int
    acceptance_length: float


class Cause(Message, frozen=True, kw_only=True):
    """One thing that makes drafters weak, with this run's own figures; `suspect` is None where too little is known."""

    cause: Literal["coverage", "layer_ids", "context_length", "training_data", "serving"]
    suspect: bool | None
    text: str


class ArmServer(Message, frozen=True, kw_only=True):
    """How an arm was served (`environment` is laid over the inherited one) and when it was measured."""

    arm: Arm
    measured_at: float
    command: list[str]
    environment: dict[str, str]


class Provenance(Message, frozen=True, kw_only=True):
    """What a verdict is about; hashes are SHA-256, None where an artifact has gone. `model_fingerprint` covers names and sizes
    of the weights, not their content.
    """

    run: str
    host_name: str
    devices: list[str]
    judged_at: float
    release: str
    model: str
    model_fingerprint: str | None
    drafter: str
    drafter_sha256: str | None
    mapping_sha256: str | None
    train: str
    train_sha256: str | None
    evaluation: str
    evaluation_sha256: str | None
    max_tokens: int
    servers: list[ArmServer]


class VerdictReport(Message, frozen=True, kw_only=True):
    """Promote, reject or inconclusive. The rates, the speed-up and its interval are those of the first of `levels`.

    `prompts` counts prompts, as do the three figures of the outputs: a prompt whose outputs differ at one level differs.
    `position_acceptance[k]` is the share of verifications that accepted the (k+1)-th proposal. `cores` is how many the host has.
    """

    decision: Decision
    baseline_tokens_per_s: float
    drafter_tokens_per_s: float
    speedup: float
    speedup_interval: tuple[float, float]
    acceptance_length: float
    coverage: float | None
    prompts: int
    identical_outputs: int
    near_ties: int
    real_divergences: int
    dtype: str
    attention_backend: str | None
    engine: str
    reasons: list[str]
    advice: list[str]
    levels: list[LevelVerdict] = []
    categories: list[CategoryAcceptance] = []
    position_acceptance: list[float] = []
    divergences: list[Divergence] = []
    causes: list[Cause] = []
    provenance: Provenance | None = None
    cores: int | None = None


class StagePlan(Message, frozen=True, kw_only=True):
    """What a stage will do; bytes and seconds are None where nothing is known to estimate them from.

    `seconds_from` is the run whose stage of the like the seconds were estimated from.

    For a server `command` is that of its engine, also where it is skipped, and `environment` is laid over the inherited one.
    """

    stage: StageName
    action: Literal["run", "skip", "resume"]
    reason: str
    command: list[str]
    output: str | None
    bytes_needed: int | None
    seconds: float | None
    environment: dict[str, str] = {}
    seconds_from: str | None = None


class RunPlan(Message, frozen=True, kw_only=True):
    """A run resolved against this host; `fingerprint` changes whenever the plan would, and `roost apply` takes it.

    `facts` are what it was drawn from: the inputs' hashes, the engines' versions, this release. `risks` forbid nothing. `seconds` is
    None where nothing is known to estimate it from.
    """

    run: RunConfig
    directory: str
    stages: list[StagePlan]
    bytes_needed: int
    bytes_free: int
    problems: list[str]
    fingerprint: str
    risks: list[str] = []
    facts: dict[str, str] = {}
    seconds: float | None = None


class ExtractionPlan(Message, frozen=True, kw_only=True):
    """The extraction of the run file `run`, or a part of it, by itself, resolved against this host; "skip" where its store is there.

    `planned` is what it writes, None where that cannot be known.
    """

    run: str
    spec: ExtractionSpec
    action: Literal["run", "skip"]
    planned: ExtractionPlanned | None
    problems: list[str]


class ExtractionReport(Message, frozen=True, kw_only=True):
    """A store and the extraction that fills it, as they are now: what its complete shards hold, what is left of its disk, and why
    samples are left out.

    `job` is the newest that writes it, None where no such job is known; `planned` is what it planned, and `advanced` what it told
    last, at `sampled_at`. Of `quarantined` samples `quarantine` has those asked for in the order in which they were left out,
    `omitted` the number of those after them; `reasons` are of all, the 20 most frequent.
    """

    store: str
    finished: bool
    samples: int
    tokens: int
    bytes: int
    shards: int
    job: Job | None
    planned: ExtractionPlanned | None
    advanced: ExtractionAdvanced | None
    sampled_at: float | None
    bytes_free: int
    inodes_free: int | None
    quarantined: int
    reasons: list[QuarantineReason]
    quarantine: list[SampleQuarantined]
    omitted: int


class TrainingPlan(Message, frozen=True, kw_only=True):
    """The training of the run file `run` by itself, resolved against this host: on which store and mapping, and whether it begins,
    goes on from a checkpoint, or is done already.
    """

    run: str
    spec: TrainingSpec
    action: Literal["run", "resume", "skip"]
    samples: int | None
    tokens: int | None
    bytes_needed: int | None
    bytes_free: int
    problems: list[str]


class ServerPlan(Message, frozen=True, kw_only=True):
    """A server of the run `run` resolved against this host: the engine's command with port 0 for the one that it will pick, and
    the `environment` to be laid over the inherited one.
    """

    run: str
    spec: ServerSpec
    command: list[str]
    environment: dict[str, str]
    problems: list[str]
