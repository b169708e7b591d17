"""Everything that a training needs, put together from its spec and checked against each other."""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from remote.agents.training.batches import Window, held_out_samples
from remote.agents.training.export import ExportedMapping
from remote.agents.training.initial import read_initial
from remote.agents.training.latent import servable
from remote.agents.training.loading import BatchReader, store_windows
from remote.agents.training.model import Drafter
from remote.agents.training.numerics import rms_norm
from remote.agents.training.objective import Teacher
from remote.agents.training.ranks import Ranks
from remote.agents.training.shape import DrafterShape
from remote.agents.training.sharding import shard
from remote.agents.training.target import TargetConfig, TargetWeights, read_target_config, read_target_weights
from remote.agents.training.trainer import Trainer, initialise
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.mapping_validation import read_mapping
from remote.errors import Precondition
from remote.protocol.run import TrainingConfig
from remote.protocol.specs import TrainingSpec


@dataclass(frozen=True)
class Exportable:
    """A drafter and what its export says besides."""

    drafter: Drafter
    mapping: ExportedMapping
    target: TargetConfig
    layer_ids: list[int]


@dataclass(frozen=True)
class Training:
    """A trainer at step 0, its data, and its drafter as it is exported (one of its own where the trainer's is sharded); `choosing` windows decide which checkpoint is
    exported, `reporting` ones say how good it is; neither are trained on.
    """

    trainer: Trainer
    reader: BatchReader
    windows: list[Window]
    choosing: list[Window]
    reporting: list[Window]
    exportable: Exportable

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""
        return sum(window.length for window in self.windows)


def pick_device(config: TrainingConfig, ranks: Ranks) -> torch.device:
    """The device of this rank, with its threads set. Raises Precondition where it is not there."""
    torch.set_num_threads(config.threads or max(1, (os.cpu_count() or 1) // ranks.local_count))
    if config.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Precondition(
            "training.device is cuda, but torch sees no CUDA device here",
            hint="set training.device to cpu, or check the driver and that torch is a CUDA build",
        )
    if ranks.local_count > torch.cuda.device_count():
        raise Precondition(
            f"training.ranks is {ranks.local_count}, but torch sees {torch.cuda.device_count()} CUDA devices here",
            hint="a rank needs a device of its own; lower training.ranks",
        )
    torch.cuda.set_device(ranks.local_number)
    return torch.device("cuda", ranks.local_number)


def drafter_shape(
    target: TargetConfig, config: TrainingConfig, *, draft_vocab_size: int, aux_layers: int
) -> DrafterShape:
    """The drafter's sizes: the target's where the configuration leaves them open. Raises Precondition."""
    wanted = config.drafter
    shape = DrafterShape(
        hidden_size=target.hidden_size,
        intermediate_size=wanted.intermediate_size or target.intermediate_size,
        num_attention_heads=wanted.num_attention_heads or target.num_attention_heads,
        num_key_value_heads=wanted.num_key_value_heads or target.num_key_value_heads,
        head_dim=wanted.head_dim or target.head_dim,
        vocab_size=target.vocab_size,
        draft_vocab_size=draft_vocab_size,
        aux_layers=aux_layers,
        rms_norm_eps=target.rms_norm_eps,
        rope=target.rope,
        max_position_embeddings=max(
            wanted.max_position_embeddings or 0, int(target.max_position_embeddings * target.rope.reach)
        ),
        normalise_aux=True,
        latent=servable(target.latent, target.rope) if wanted.architecture == "mla" else None,
    )
    if shape.latent is not None:
        return shape
    if shape.num_attention_heads % shape.num_key_value_heads or shape.head_dim % 2:
        raise Precondition(
            f"a drafter with {shape.num_attention_heads} heads of {shape.head_dim} over {shape.num_key_value_heads} "
            "key-value heads cannot be built",
            hint="training.drafter: the heads must be a multiple of the key-value heads, the head size even",
        )
    if shape.hidden_size % shape.num_attention_heads:
        raise Precondition(
            f"a drafter with {shape.num_attention_heads} heads over a hidden size of {shape.hidden_size} would be served by no engine",
            hint="transformers, through which engines read its config, wants a multiple: set training.drafter.num_attention_heads "
            "(and head_dim)",
        )
    return shape


def _check(store: StoreReader, mapping: ExportedMapping, target: TargetConfig, weights: TargetWeights) -> None:
    if store.properties.hidden_size != target.hidden_size:
        raise Precondition(
            f"the store holds states of size {store.properties.hidden_size}, the target's are {target.hidden_size}: "
            "it was extracted from another model"
        )
    rows, size = len(mapping.t2d), len(weights.embedding)
    if not rows <= min(size, len(weights.head)) or rows != target.vocab_size:
        raise Precondition(
            f"the mapping is for a vocabulary of {rows} tokens, the target has {target.vocab_size} (embedding {size})"
        )


def _mapping(path: Path) -> tuple[ExportedMapping, Tensor]:
    mapping = read_mapping(path)
    d2t = torch.from_numpy(mapping.d2t.copy())
    return ExportedMapping(d2t, torch.from_numpy(mapping.t2d.copy())), d2t + torch.arange(len(d2t))


def _beginning(
    spec: TrainingSpec, mapping: ExportedMapping, target: TargetConfig, layer_ids: list[int]
) -> tuple[DrafterShape, dict[str, Tensor] | None]:
    """The drafter's sizes, and the weights that it begins with where it has learned before."""
    if spec.training.init_from is not None:
        return read_initial(Path(spec.training.init_from), mapping, target, layer_ids)
    shape = drafter_shape(target, spec.training, draft_vocab_size=len(mapping.d2t), aux_layers=len(layer_ids))
    return shape, None


def shape_drafter(spec: TrainingSpec) -> Exportable:
    """The drafter of a training with weights that mean nothing yet. Raises Precondition."""
    mapping, _ = _mapping(Path(spec.mapping))
    target = read_target_config(Path(spec.target_model))
    layer_ids = list(StoreReader(Path(spec.store)).properties.layer_ids)
    shape, _ = _beginning(spec, mapping, target, layer_ids)
    return Exportable(Drafter(shape), mapping, target, layer_ids)


def prepare(spec: TrainingSpec, device: torch.device, ranks: Ranks) -> Training:
    """Read store, mapping and target, and set up the drafter at step 0. Raises Precondition where they do not fit."""
    config = spec.training
    store = StoreReader(Path(spec.store))
    properties = store.properties
    mapping, draft_ids = _mapping(Path(spec.mapping))
    target = read_target_config(Path(spec.target_model))
    weights = read_target_weights(Path(spec.target_model))
    _check(store, mapping, target, weights)
    kept = held_out_samples(len(store))
    trained = sorted(set(range(len(store))).difference(kept.choosing, kept.reporting))
    windows = store_windows(store, trained, config.sequence_length)
    if not windows:
        raise Precondition(f"nothing in the store {spec.store} counts in the loss: its loss masks are empty")
    layer_ids = list(properties.layer_ids)
    shape, learned = _beginning(spec, mapping, target, layer_ids)
    head = weights.head[: target.vocab_size].float()
    drafter = Drafter(shape)
    initialise(
        drafter,
        embedding=weights.embedding.to(device),
        draft_head=head[draft_ids],
        seed=config.seed,
    )
    if learned is not None:
        drafter.load_state_dict(learned)
    drafter = drafter.to(device)
    exported = drafter
    if config.sharded and ranks.count > 1:
        if ranks.is_first:
            exported = Drafter(shape).to(device)
            exported.embedding = drafter.embedding
        shard(drafter, ranks.count)
    teacher = Teacher(head.to(device), mapping.t2d.to(device))
    pre_norm = properties.final_norm != "post_norm"
    norm = partial(rms_norm, weight=weights.final_norm.to(device), eps=target.rms_norm_eps) if pre_norm else None
    return Training(
        trainer=Trainer(drafter, teacher, draft_ids.to(device), config, ranks, failures=Path(spec.checkpoints)),
        reader=BatchReader(store, device, final_norm=norm),
        windows=windows,
        choosing=store_windows(store, kept.choosing, config.sequence_length),
        reporting=store_windows(store, kept.reporting, config.sequence_length),
        exportable=Exportable(exported, mapping, target, layer_ids),
    )
