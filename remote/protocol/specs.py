"""What each agent is asked to do: one frozen spec an agent. Paths are absolute on the host."""

from typing import Annotated, Literal

import msgspec

from remote.protocol.base import Message
from remote.protocol.ids import JobId
from remote.protocol.mappings import MappingBuildSpec, MappingConvertSpec, MappingCoverageSpec
from remote.protocol.run import (
    CAPTURE_MEMORY_BYTES,
    BenchmarkConfig,
    EngineConfig,
    EvaluationConfig,
    ExtractionConfig,
    LayerIds,
    Positive,
    RunConfig,
    SpeculationConfig,
    TemplateVariables,
    TrainingConfig,
    VocabularyConfig,
)

Arm = Literal["baseline", "drafter"]
"""The two sides of an evaluation: the target alone, and the target with the drafter."""


class Capture(Message, frozen=True, kw_only=True):
    """Hidden states to be captured while serving: Hugging Face layer ids, and where the plugin drops finished requests.

    `memory_bytes` is what all ranks together may hold of them on the host until they are written.
    """

    layer_ids: LayerIds
    spool_directory: str
    memory_bytes: Positive = CAPTURE_MEMORY_BYTES


class DrafterServing(Message, frozen=True, kw_only=True):
    """A drafter to serve with, and how far it speculates.

    `layer_ids` (Hugging Face ids) and `mapping` are what it was trained with, where that is known: the launch is refused when
    the drafter says otherwise.
    """

    model: str
    speculation: SpeculationConfig
    layer_ids: LayerIds | None = None
    mapping: str | None = None


EngineSection = Literal["engine", "serving"]
"""The part of a run file that describes an engine."""


class ServerSpec(Message, frozen=True, kw_only=True):
    """Serve `model` on a loopback port that the agent picks and reports as `ServerReady`.

    `section` is where the run file describes the engine: what goes wrong is told with the keys that mend it. Whoever measures the
    server asks it through the model's chat template with `chat_template_kwargs`.
    """

    model: str
    engine: EngineConfig
    section: EngineSection = "engine"
    capture: Capture | None = None
    drafter: DrafterServing | None = None
    chat_template_kwargs: TemplateVariables = {}


class Part(Message, frozen=True, kw_only=True):
    """The `number`-th (from 1) of so many parts `of` the store with the fingerprint `whole`: every `of`-th conversation."""

    number: Positive
    of: Positive
    whole: str


class ExtractionSpec(Message, frozen=True, kw_only=True):
    """Send every conversation, or those of a part, through the capturing server at `url` and write the store."""

    url: str
    capture: Capture
    target_model: str
    conversations: str
    store: str
    extraction: ExtractionConfig
    max_length: int
    fingerprint: str
    max_samples: int | None = None
    part: Part | None = None
    target_revision: str | None = None
    chat_template_kwargs: TemplateVariables = {}


class Recapture(Message, frozen=True, kw_only=True):
    """So many samples that the capturing server at `url`, which serves `model`, is asked for once more."""

    samples: int
    url: str
    model: str
    capture: Capture


class StoreVerificationSpec(Message, frozen=True, kw_only=True):
    """Verify a store: its structure, and the hashes and states of `samples` random samples and their shards, or of all (None)."""

    store: str
    samples: int | None = None
    seed: int = 0
    recapture: Recapture | None = None


StoreLayout = Literal["specforge", "speculators"]
"""How another trainer keeps hidden states."""


class StoreExportSpec(Message, frozen=True, kw_only=True):
    """Write a store's samples into `directory` in the files of another trainer; one that is there is refused."""

    layout: StoreLayout
    store: str
    directory: str


class StoreImportSpec(Message, frozen=True, kw_only=True):
    """Make a store of another trainer's files, which hold the states of `target_model` at `layer_ids`.

    `chat_template_kwargs` are those with which its conversations were read; a run that learns from it has to have the same.
    """

    layout: StoreLayout
    directory: str
    store: str
    target_model: str
    layer_ids: LayerIds
    chat_template_kwargs: TemplateVariables = {}


class StoreMergeSpec(Message, frozen=True, kw_only=True):
    """Make the whole `store` of all its `parts`, which are stores of extractions with a `Part`."""

    parts: Annotated[list[str], msgspec.Meta(min_length=2)]
    store: str


class VocabularySpec(Message, frozen=True, kw_only=True):
    """Build the mapping from the store's loss-masked token counts, or copy it from `vocabulary.source`, and validate it.

    What was counted is kept at `counts`.
    """

    store: str
    target_model: str
    mapping: str
    vocabulary: VocabularyConfig
    fingerprint: str
    counts: str | None = None


class MappingCopySpec(Message, frozen=True, kw_only=True):
    """Copy a validated mapping; an existing different destination is refused unless `replace`.

    `origin` says where it lay on another host, if it came from there: what lies in ROOT/incoming then goes once it has its place.
    """

    source: str
    destination: str
    replace: bool = False
    origin: str | None = None


class TrainingSpec(Message, frozen=True, kw_only=True):
    """Train the drafter on the store and export it, for SGLang and vLLM, to `drafter`; checkpoints go to `checkpoints`."""

    store: str
    mapping: str
    target_model: str
    drafter: str
    checkpoints: str
    training: TrainingConfig
    fingerprint: str


DrafterLayout = Literal["sglang", "speculators"]
"""Whose config and names a drafter has: those that SGLang and vLLM read, or speculators' own, which vLLM reads, too."""


class DrafterExportSpec(Message, frozen=True, kw_only=True):
    """Write the drafter of a checkpoint of `training` into `directory` in `layout`: that of `step`, or the best on validation text (None)."""

    training: TrainingSpec
    directory: str
    step: int | None = None
    layout: DrafterLayout = "sglang"


class EvaluationSpec(Message, frozen=True, kw_only=True):
    """Measure one arm against the server at `url`; `reference` names the other arm's report to compare the outputs with.

    `drafter` is the one that the server has. `server_pid` is the server's first process: what it and those below it use is not
    taken for load by others.
    """

    arm: Arm
    url: str
    target_model: str
    prompts: str
    report: str
    evaluation: EvaluationConfig
    fingerprint: str
    reference: str | None = None
    drafter: str | None = None
    server_pid: int | None = None
    chat_template_kwargs: TemplateVariables = {}


class BenchmarkSpec(Message, frozen=True, kw_only=True):
    """Measure the server at `url`, which the job `server_job_id` runs as `server` says, with the chat prompts of a JSONL file."""

    url: str
    server_job_id: JobId
    server: ServerSpec
    prompts: str
    benchmark: BenchmarkConfig


class PurgeSpec(Message, frozen=True, kw_only=True):
    """Delete these entries of the trash for good; anything else is refused."""

    entries: list[str]


class RecorderSpec(Message, frozen=True, kw_only=True):
    """Keep readings of the host for as long as a job is at work or a console watches, and `idle_exit_s` longer."""

    idle_exit_s: float = 120.0


class ExerciseSpec(Message, frozen=True, kw_only=True):
    """Hold `gpus` devices that a stand-in plays, and train a small model on the CPU meanwhile, a step every `step_s`.

    After `stands_after` steps nothing comes of it any more, as when a rank waits for a peer that is elsewhere; None is never.
    """

    gpus: int
    steps: int
    step_s: float
    stands_after: int | None = None


class TuningSpec(Message, frozen=True, kw_only=True):
    """Find the settings of `run.tuning` with which the run's server is fastest."""

    run: RunConfig


class RunSpec(Message, frozen=True, kw_only=True):
    """Run the whole pipeline; it is itself a job. With `plan` only exactly as the plan of that fingerprint said."""

    run: RunConfig
    plan: str | None = None


Spec = (
    ServerSpec
    | ExtractionSpec
    | StoreVerificationSpec
    | StoreExportSpec
    | StoreImportSpec
    | StoreMergeSpec
    | VocabularySpec
    | MappingBuildSpec
    | MappingCopySpec
    | MappingConvertSpec
    | MappingCoverageSpec
    | TrainingSpec
    | DrafterExportSpec
    | EvaluationSpec
    | PurgeSpec
    | BenchmarkSpec
    | RecorderSpec
    | ExerciseSpec
    | RunSpec
    | TuningSpec
)
"""Every spec; the tag names the agent's work."""
