"""Training by several processes, one device each: what they add up, and what the first one decides for all.

Every rank holds the whole drafter and its optimizer, or a share of them; they differ in the batches that they read. The processes of one
host find each other through a file (PyTorch's FileStore), those of several at the first one's port (TCPStore, torchrun's static
rendezvous). They talk over gloo, and over NCCL where the tensors lie on GPUs.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import psutil
import torch
from torch import Tensor, distributed

from remote.errors import Precondition
from remote.protocol.run import TrainingConfig

_T = TypeVar("_T")


def interface_towards(endpoint: str) -> str:
    """The network interface from which HOST:PORT is reached; raises Precondition where it is not."""
    host, _, port = endpoint.rpartition(":")
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # sends nothing
            own = probe.getsockname()[0]
    except (OSError, ValueError) as error:
        raise Precondition(
            f"training.hosts.rendezvous, {endpoint}, is not reached from here: {error}",
            hint="name an address of the first host in the network that all of them share, and a free port",
        ) from error
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == own for address in addresses):
            return name
    raise Precondition(f"no network interface of this host has the address {own}, from which {endpoint} is reached")


# A full disk pauses the first rank for as long as it takes; a rank that is gone is told by `companions`, not by a clock.
_PATIENCE = timedelta(days=30)


class Ranks:
    """This process among `count`, by its `number` from 0, and among the `local_count` of its host. One alone adds nothing up and needs
    no others.
    """

    def __init__(self, number: int = 0, count: int = 1, *, local_count: int | None = None) -> None:
        self.number = number
        self.count = count
        self.local_count = local_count or count
        self.local_number = number % self.local_count

    @classmethod
    def of(cls, training: TrainingConfig, local_number: int) -> "Ranks":
        """That of a process of this host: a host's ranks are numbered one after another, the first host's first."""
        hosts, local = training.hosts, training.ranks
        return cls(hosts.number * local + local_number, hosts.count * local, local_count=local)

    @property
    def is_first(self) -> bool:
        """Whether this rank tells, saves and exports."""
        return self.number == 0

    def meet(self, file: Path, training: TrainingConfig) -> None:
        """Wait for the other ranks and be bound to them: those of a host name the same new `file`, those of several the same endpoint."""
        if self.count == 1:
            return
        device, endpoint = training.device, training.hosts.rendezvous
        if training.hosts.count == 1 or endpoint is None:
            interface, meeting = "lo", f"file://{file}"
        else:
            interface, meeting = interface_towards(endpoint), f"tcp://{endpoint}"
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, interface)
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            init_method=meeting,
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
