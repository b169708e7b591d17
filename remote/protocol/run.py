"""A run as its TOML file describes it: every section is a `Config`; relative paths mean below the host's root."""

from typing import Annotated, Literal

import msgspec

from remote.protocol.base import Config

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
LayerIds = Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)]
FlagValue = str | int | float | bool | list[str]
Dtype = Literal["bfloat16", "float16", "float32"]
EngineName = Literal["sglang", "vllm"]
Concurrency = Annotated[int, msgspec.Meta(ge=1, le=4096)]
"""How many requests are under way at a time."""


CAPTURE_MEMORY_BYTES = 4 << 30
"""Some seventy thousand tokens of a model with 7,168 columns, three layers and the final state in bfloat16."""


TemplateVariables = dict[str, bool | int | float | str]
"""Variables of a chat template by their names in it."""


class TargetConfig(Config, frozen=True, kw_only=True):
    """The model that is to become faster: a Hugging Face directory on the host.

    `chat_template_kwargs` are variables of its chat template, as SGLang and vLLM take them with a request: Kimi-K2.5 answers at once
    with `thinking = false`. Conversations are read and the model is asked with them.
    """

    model: str
    revision: str | None = None
    chat_template_kwargs: TemplateVariables = {}


class DataConfig(Config, frozen=True, kw_only=True):
    """Conversations as JSONL, one `{"id", "conversations": [{"role", "content"}, …]}` a line; `evaluation` may hold prompts in the
    format of MT-Bench instead, with categories.
    """

    train: str
    evaluation: str
    max_samples: Positive | None = None
    max_length: Positive = 2048


class EngineConfig(Config, frozen=True, kw_only=True):
    """How the inference server is launched; `flags` are the engine's own long options without the dashes.

    `restarts` is how often in a row `roost server start` launches an engine again that died while it served; the servers of a run
    and of a tuning are never, for figures of two launches are not one measurement."""

    name: EngineName = "sglang"
    python: str | None = None
    device: Literal["cpu", "cuda"] = "cuda"
    dtype: Dtype = "bfloat16"
    attention_backend: str | None = None
    tensor_parallel_size: Positive = 1
    memory_fraction: Fraction | None = None
    context_length: Positive | None = None
    max_running_requests: Positive | None = None
    flags: dict[str, FlagValue] = {}
    environment: dict[str, str] = {}
    ready_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    restarts: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


class ExtractionConfig(Config, frozen=True, kw_only=True):
    """`layer_ids` are Hugging Face `hidden_states` indices: id k is the residual stream at the input of layer k.

    `capture_memory_bytes` bounds what the engine's ranks together hold on the host until it is written.
    A sample that fails `attempts` times is quarantined; more than the share `quarantine_share` of all samples ends the extraction.
    A store that does not fit the disk as it is planned is refused or waited for; `keep_free_bytes` are left to others.
    With `source` nothing is extracted: that store is verified, compared with the target and the layers, and learned from where it lies.
    """

    layer_ids: LayerIds
    source: str | None = None
    concurrency: Positive = 8
    shard_bytes: Positive = 2 << 30
    capture_memory_bytes: Positive = CAPTURE_MEMORY_BYTES
    attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    quarantine_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    when_short: Literal["refuse", "wait"] = "refuse"
    keep_free_bytes: NotNegative = 0


class VocabularyConfig(Config, frozen=True, kw_only=True):
    """The draft vocabulary: built from the store's loss-masked counts, or copied from `source` and validated."""

    draft_vocab_size: Positive
    source: str | None = None
    minimum_coverage: float | None = None


class DrafterConfig(Config, frozen=True, kw_only=True):
    """The drafter's kind and its own sizes; `None` takes the target's value.

    "mla" is DeepSeek's latent attention, its widths always the target's; `num_key_value_heads` and `head_dim` are of "llama" alone.
    """

    architecture: Literal["llama", "mla"] = "llama"
    intermediate_size: Positive | None = None
    num_attention_heads: Positive | None = None
    num_key_value_heads: Positive | None = None
    head_dim: Positive | None = None
    max_position_embeddings: Positive | None = None


class HostsConfig(Config, frozen=True, kw_only=True):
    """A training over `count` hosts, of which this one is `number`, from 0; they meet at `rendezvous`, HOST:PORT of the first."""

    count: Positive = 1
    number: NotNegative = 0
    rendezvous: str | None = None


TrackerName = Literal["tensorboard", "wandb", "trackio"]


class TrackersConfig(Config, frozen=True, kw_only=True):
    """Where the figures of a training go besides: to each tracker of `use`, by its own library in the jobs' Python.

    Their files lie in `directory`. `project` is that of Weights & Biases and trackio, `entity` the team of the former, which with
    `wandb_mode` "offline" only keeps files for `wandb sync`.
    """

    use: list[TrackerName] = []
    directory: str | None = None
    project: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")] = "roost"
    entity: str | None = None
    wandb_mode: Literal["online", "offline"] = "online"


class TrainingConfig(Config, frozen=True, kw_only=True):
    """EAGLE-3 with training-time test: `ttt_length` draft steps, the k-th weighted by `ttt_decay ** k`.

    An optimizer step learns from `batches_per_step` batches, shared among `ranks` processes of each host with a device each: what is learned does
    not depend on how many share them. A drafter is measured on validation text with every checkpoint; of those the newest
    `checkpoints_kept` stay, and the best. With `sharded` the ranks share weights and moments, too. It begins as the drafter in the directory `init_from`, if that is named.
    """

    drafter: DrafterConfig = DrafterConfig()
    hosts: HostsConfig = HostsConfig()
    trackers: TrackersConfig = TrackersConfig()
    steps: Positive = 1000
    batch_tokens: Positive = 2048
    batches_per_step: Positive = 1
    ranks: Positive = 1
    sharded: bool = False
    sequence_length: Positive = 2048
    ttt_length: Positive = 7
    ttt_decay: float = 0.8
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-4
    warmup_fraction: float = 0.015
    weight_decay: float = 0.0
    gradient_clip: float = 0.5
    device: Literal["cpu", "cuda"] = "cuda"
    threads: Positive | None = None
    seed: int = 0
    log_every: Positive = 10
    checkpoint_every: Positive = 500
    checkpoints_kept: Positive = 2
    init_from: str | None = None


TRAINING_COMFORT = ("device", "hosts", "ranks", "sharded", "threads", "log_every", "checkpoints_kept", "trackers")
"""Keys of `training` that may change when one is gone on with: what is exported does not depend on them."""


class SpeculationConfig(Config, frozen=True, kw_only=True):
    """How many tokens the drafter proposes; with top-k 1 a chain of `draft_tokens - 1` proposals and the bonus token."""

    num_steps: Positive = 3
    top_k: Positive = 1
    draft_tokens: Positive = 4


class EvaluationConfig(Config, frozen=True, kw_only=True):
    """Both arms answer the same held-out prompts greedily, on the same backend and in `dtype`, once with each number of requests
    at a time (`concurrency`, the lowest first).

    `attention_backend` stands in for that of `engine`; a `serving` has its own.
    """

    concurrency: Annotated[list[Concurrency], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: [1, 4]
    )
    prompts: Positive = 20
    max_tokens: Annotated[int, msgspec.Meta(ge=2)] = 64
    warmup_prompts: int = 1
    dtype: Dtype = "float32"
    attention_backend: str | None = None
    near_tie_logit_gap: float = 1e-3


class BenchmarkConfig(Config, frozen=True, kw_only=True):
    """The first `prompts` of a file (None for all of them), greedily, `repeats` times over with each number of requests at a time."""

    concurrency: Annotated[list[Concurrency], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: [1])
    prompts: Positive | None = None
    repeats: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    max_tokens: Annotated[int, msgspec.Meta(ge=2)] = 128
    warmup_prompts: NotNegative = 2


class VerdictConfig(Config, frozen=True, kw_only=True):
    """What a drafter must reach to be promoted, at which of the measured loads; None means at all of them."""

    concurrency: Annotated[list[Concurrency], msgspec.Meta(min_length=1)] | None = None
    minimum_speedup: float = 1.0
    minimum_acceptance_length: float = 1.2


SweepValue = FlagValue | dict[str, FlagValue]


class TuningConfig(Config, frozen=True, kw_only=True):
    """What `roost server tune` tries: every combination of the values in `sweep`, whose keys are keys of this file, such as
    `engine.flags.chunked-prefill-size`; a table as a value sets several keys below that one together.

    `objective` is one request's rate after its first token, or from its beginning, with `concurrency` requests at a time.
    `prompts` are asked in the last round, fewer in those before.
    """

    sweep: Annotated[dict[str, Annotated[list[SweepValue], msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
    drafter: bool = False
    objective: Literal["decode", "end_to_end"] = "decode"
    concurrency: Concurrency = 1
    prompts: Positive = 16
    repeats: Annotated[int, msgspec.Meta(ge=1, le=100)] = 2
    max_tokens: Annotated[int, msgspec.Meta(ge=2)] = 128
    warmup_prompts: NotNegative = 2


class RunConfig(Config, frozen=True, kw_only=True):
    """One run of the whole pipeline; `directory` receives every artifact of it (default `runs/<name>`).

    `engine` captures the hidden states and serves both arms of the evaluation unless `serving` names another
    engine, or the same with other settings; nothing of `engine` is taken over into that.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,31}\Z")]
    target: TargetConfig
    data: DataConfig
    engine: EngineConfig
    extraction: ExtractionConfig
    vocabulary: VocabularyConfig
    training: TrainingConfig
    directory: str | None = None
    serving: EngineConfig | None = None
    speculation: SpeculationConfig = SpeculationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    verdict: VerdictConfig = VerdictConfig()
    tuning: TuningConfig | None = None

    @property
    def serving_engine(self) -> EngineConfig:
        """What serves both arms of the evaluation."""
        return self.serving or self.engine
