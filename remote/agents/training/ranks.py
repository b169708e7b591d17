"""Training by several processes on a host, one device each: what they add up, and what the first one decides for all.

Every rank holds the whole drafter and its optimizer; they differ in the batches that they read. The processes find each other through a
file (PyTorch's FileStore) and talk over gloo, and over NCCL where the tensors lie on GPUs.
"""

import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, distributed

_T = TypeVar("_T")

# A full disk pauses the first rank for as long as it takes; a rank that is gone is told by `companions`, not by a clock.
_PATIENCE = timedelta(days=30)


class Ranks:
    """This process among `count`, by its `number` from 0. One alone adds nothing up and needs no others."""

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.number = number
        self.count = count

    @property
    def is_first(self) -> bool:
        """Whether this rank tells, saves and exports."""
        return self.number == 0

    def meet(self, rendezvous: Path, device: str) -> None:
        """Wait for the other ranks, all of which name the same new file, and are then bound to each other."""
        if self.count == 1:
            return
        for interface in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(interface, "lo")  # all of them are on this host
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            init_method=f"file://{rendezvous}",
            rank=self.number,
            world_size=self.count,
            timeout=_PATIENCE,
        )

    def add(self, tensor: Tensor) -> Tensor:
        """`tensor` summed over the ranks, in place."""
        if self.count > 1:
            distributed.all_reduce(tensor)
        return tensor

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Every parameter's gradient summed over the ranks, in place."""
        if self.count > 1:
            for parameter in parameters:
                if parameter.grad is not None:
                    distributed.all_reduce(parameter.grad)

    def as_the_first(self, value: _T) -> _T:
        """The first rank's `value`, on every rank."""
        if self.count == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def together(self, values: list[int]) -> list[int]:
        """The values of all ranks, in their order."""
        if self.count == 1:
            return values
        boxes: list[list[int]] = [[] for _ in range(self.count)]
        distributed.all_gather_object(boxes, values)
        return [value for box in boxes for value in box]

    def share(self, batches: int) -> int:
        """How many of a step's `batches` are this rank's."""
        return len(range(self.number, batches, self.count))

    def own(self, batches: Iterator[_T], batches_per_step: int) -> Iterator[_T]:
        """Those of `batches`, which begin at a step's first, that are this rank's."""
        return (batch for place, batch in enumerate(batches) if place % batches_per_step % self.count == self.number)
