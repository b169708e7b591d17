"""Results that people read: validation of a mapping, the evaluation of an arm, the verdict, the plan of a run."""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.progress import StageName
from remote.protocol.run import RunConfig
from remote.protocol.specs import Arm


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
    """The state of a mapping directory; `valid` means no finding of severity error."""

    path: str
    valid: bool
    findings: list[Finding]
    files: list[MappedFile]
    draft_vocab_size: int | None
    target_vocab_size: int | None
    coverage: float | None
    provenance: Literal["roost", "foreign"]


class PromptResult(Message, frozen=True, kw_only=True):
    """One prompt of an evaluation. `decode_tokens_per_s` = (out - 1) / (end to end - time to first token)."""

    prompt_id: str
    output_ids: list[int]
    output_text: str
    time_to_first_token_s: float
    end_to_end_s: float
    decode_tokens_per_s: float
    verify_calls: int | None
    acceptance_length: float | None


class Divergence(Message, frozen=True, kw_only=True):
    """Where the two arms' greedy outputs part; a gap under the bound is a near-tie and counts as equal."""

    prompt_id: str
    position: int
    token_baseline: int
    token_drafter: int
    top_two_logit_gap: float
    near_tie: bool


class EvaluationReport(Message, frozen=True, kw_only=True):
    """One arm: token-weighted decode rate over all prompts, acceptance weighted by verifications (bonus token included)."""

    arm: Arm
    model: str
    drafter: str | None
    engine: str
    engine_version: str
    dtype: str
    attention_backend: str | None
    prompts: list[PromptResult]
    decode_tokens_per_s: float
    end_to_end_tokens_per_s: float
    acceptance_length: float | None
    compared_prompts: int
    divergences: list[Divergence]
    fingerprint: str


class VerdictReport(Message, frozen=True, kw_only=True):
    """Promote, reject or inconclusive, with both rates. `speedup_interval` is a 95% paired bootstrap over the prompts."""

    decision: Literal["promote", "reject", "inconclusive"]
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


class StagePlan(Message, frozen=True, kw_only=True):
    """What a stage will do; bytes and seconds are None where nothing is known to estimate them from.

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


class RunPlan(Message, frozen=True, kw_only=True):
    """A run resolved against this host; `fingerprint` changes whenever the plan would."""

    run: RunConfig
    directory: str
    stages: list[StagePlan]
    bytes_needed: int
    bytes_free: int
    problems: list[str]
    fingerprint: str
