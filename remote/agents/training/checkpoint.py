"""Checkpoints: a directory a step, published whole with a manifest, so that a killed training resumes from a sound one."""

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import torch

from remote.agents.training.measure import Acceptance
from remote.agents.training.model import Drafter
from remote.agents.training.sharding import load_moments, load_weights
from remote.agents.training.trainer import Trainer
from remote.artifacts.atomic import publish_directory
from remote.artifacts.manifest import Manifest, read_manifest, verify, write_manifest
from remote.errors import Conflict, Precondition, RoostError

FORMAT = "roost-checkpoint"
_STATE = "state.pt"
_MEASURED = "acceptance"
_SMALL_BYTES = 1 << 20


def _state(trainer: Trainer) -> dict[str, Any]:
    return {
        "step": trainer.step,
        "tokens": trainer.tokens,
        **trainer.whole_state(),
        "random": torch.get_rng_state(),
    }


def checkpoint_bytes(trainer: Trainer) -> int:
    """About what a checkpoint takes: the weights, and two moments for each that is trained."""
    weights = sum(value.nbytes for value in trainer.drafter.state_dict().values())
    moments = sum(8 * parameter.numel() for parameter in trainer.drafter.parameters() if parameter.requires_grad)
    return weights + moments + _SMALL_BYTES


def discard_unfinished(directory: Path, step: int) -> None:
    """Remove what a failed write of the checkpoint of `step` has left."""
    shutil.rmtree(_part(directory, step), ignore_errors=True)


def _part(directory: Path, step: int) -> Path:
    return directory / f"step-{step:08d}.part"


def save_checkpoint(directory: Path, trainer: Trainer, *, fingerprint: str, producer: str) -> Path:
    """Write the trainer's weights, optimizer, random state and step below `directory`; one that is there already stays."""
    final = directory / f"step-{trainer.step:08d}"
    if final.exists():
        if _is_sound(final, fingerprint):
            return final
        shutil.rmtree(final)
    part = _part(directory, trainer.step)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    torch.save(_state(trainer), part / _STATE)
    manifest = Manifest(
        format=FORMAT,
        version=1,
        fingerprint=fingerprint,
        inputs={},
        producer=producer,
        created_at=time.time(),
        files=[],
        properties={"step": trainer.step},
    )
    write_manifest(part, manifest, [_STATE])
    publish_directory(part, final)
    return final


def record_acceptance(checkpoint: Path, acceptance: Acceptance) -> None:
    """Put on record how well the drafter of a checkpoint did on validation text."""
    manifest = read_manifest(checkpoint)
    properties = {**manifest.properties, _MEASURED: asdict(acceptance)}
    write_manifest(checkpoint, msgspec.structs.replace(manifest, properties=properties))


def acceptance_of(checkpoint: Path) -> Acceptance | None:
    """How well the drafter of a checkpoint did on validation text; None when that was not measured."""
    try:
        measured = read_manifest(checkpoint).properties.get(_MEASURED)
    except RoostError:
        return None
    return None if measured is None else Acceptance(**measured)


def leading_checkpoint(directory: Path, fingerprint: str) -> Path | None:
    """What `best_checkpoint` will be, by the records and the sizes alone: at every save, reading the checkpoints whole would cost minutes."""
    return next((path for path in _ranked(directory) if _is_sound(path, fingerprint, hashes=False)), None)


def checkpoint_of_step(directory: Path, fingerprint: str, step: int) -> Path:
    """The sound checkpoint of `step`; raises Precondition with the steps that there are."""
    sound = {checkpoint_step(path): path for path in _checkpoints(directory) if _is_sound(path, fingerprint)}
    if step not in sound:
        there = ", ".join(map(str, sorted(sound))) or "none"
        raise Precondition(f"there is no sound checkpoint of step {step} in {directory}", hint=f"there are: {there}")
    return sound[step]


def best_checkpoint(directory: Path, fingerprint: str) -> Path | None:
    """The sound checkpoint of the training with the longest acceptance on validation text, the newer of equals; None without any."""
    return next((path for path in _ranked(directory) if _is_sound(path, fingerprint)), None)


def _ranked(directory: Path) -> list[Path]:
    measured = [(found.length, path) for path in _checkpoints(directory) if (found := acceptance_of(path)) is not None]
    return [path for _, path in sorted(measured, reverse=True)]


def prune_checkpoints(directory: Path, fingerprint: str, *, keep: int) -> None:
    """Remove all checkpoints but the newest `keep` and the leading one."""
    kept = {*_checkpoints(directory)[:keep], leading_checkpoint(directory, fingerprint)}
    for path in set(_checkpoints(directory)) - kept:
        shutil.rmtree(path, ignore_errors=True)


def _checkpoints(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-????????"), reverse=True)


def checkpoint_step(checkpoint: Path) -> int:
    """The optimizer steps that were done when `checkpoint` was written."""
    return int(checkpoint.name.removeprefix("step-"))


def _fingerprint(checkpoint: Path) -> str | None:
    try:
        return read_manifest(checkpoint).fingerprint
    except RoostError:
        return None


def _is_sound(checkpoint: Path, fingerprint: str, *, hashes: bool = True) -> bool:
    try:
        verify(checkpoint, hashes=hashes)
    except RoostError:
        return False
    return _fingerprint(checkpoint) == fingerprint


def newest_checkpoint(directory: Path, fingerprint: str) -> Path | None:
    """The newest whole checkpoint of the training with `fingerprint`; damaged ones are passed over.

    Raises Conflict when a checkpoint of another training lies there: neither may resume from or delete the other's.
    """
    for path in _checkpoints(directory):
        if _fingerprint(path) not in (None, fingerprint):
            raise Conflict(
                f"{path} is a checkpoint of another training (other inputs or settings)",
                hint="give this training a checkpoint directory of its own, or move that one away",
            )
    return next((path for path in _checkpoints(directory) if _is_sound(path, fingerprint)), None)


def restore_weights(drafter: Drafter, checkpoint: Path) -> None:
    """Give `drafter` the weights of `checkpoint`; its optimizer's moments are never read."""
    state = torch.load(checkpoint / _STATE, map_location="cpu", weights_only=True, mmap=True)
    drafter.load_state_dict(state["drafter"])


def restore(trainer: Trainer, checkpoint: Path) -> None:
    """Put the trainer where it was when `checkpoint` was written."""
    # Where a rank keeps a share, it reads no more of the file than a tensor at a time.
    where = "cpu" if trainer.sharded else trainer.device
    state = torch.load(checkpoint / _STATE, map_location=where, weights_only=True, mmap=trainer.sharded)
    load_weights(trainer.drafter, state["drafter"])
    for name, optimizer in trainer.optimizers.items():
        load_moments(optimizer, state[name])
    torch.set_rng_state(state["random"].cpu())
    trainer.step = state["step"]
    trainer.tokens = state["tokens"]
