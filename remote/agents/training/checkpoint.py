"""Checkpoints: a directory a step, published whole with a manifest, so that a killed training resumes from a sound one."""

import shutil
import time
from pathlib import Path
from typing import Any

import torch

from remote.agents.training.trainer import Trainer
from remote.artifacts.atomic import publish_directory
from remote.artifacts.manifest import Manifest, read_manifest, verify, write_manifest
from remote.errors import Conflict, RoostError

FORMAT = "roost-checkpoint"
_STATE = "state.pt"
_KEPT = 2
_SMALL_BYTES = 1 << 20


def _state(trainer: Trainer) -> dict[str, Any]:
    return {
        "step": trainer.step,
        "tokens": trainer.tokens,
        "drafter": trainer.drafter.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
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
    """Write the trainer's weights, optimizer, random state and step below `directory`; only the newest two are kept."""
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
    for old in _checkpoints(directory)[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return final


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


def _is_sound(checkpoint: Path, fingerprint: str) -> bool:
    try:
        verify(checkpoint)
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


def restore(trainer: Trainer, checkpoint: Path) -> None:
    """Put the trainer where it was when `checkpoint` was written."""
    state = torch.load(checkpoint / _STATE, map_location=trainer.device, weights_only=True)
    trainer.drafter.load_state_dict(state["drafter"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"].cpu())
    trainer.step = state["step"]
    trainer.tokens = state["tokens"]
