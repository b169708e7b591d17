"""From the store to batches of tensors: one batch is read ahead in a thread while the one before is trained on."""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import torch
from torch import Tensor

from remote.agents.training.batches import Window, cut_windows
from remote.agents.training.objective import Batch
from remote.agents.training.packing import Packing
from remote.artifacts.hidden_states import StoreReader


def as_tensor(array: np.ndarray, dtype: str) -> Tensor:
    """`array` as a tensor; bfloat16 arrives as uint16 bit patterns."""
    if dtype == "bfloat16":
        return torch.from_numpy(np.array(array, dtype=np.uint16).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def store_windows(store: StoreReader, samples: Iterable[int], sequence_length: int) -> list[Window]:
    """The windows of `samples` that have something to learn from."""
    windows: list[Window] = []
    for number in samples:
        windows += cut_windows(number, store.sample(number).loss_mask.tolist(), sequence_length)
    return windows


class BatchReader:
    """Reads windows of a store into batches."""

    def __init__(
        self, store: StoreReader, device: torch.device, *, final_norm: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.store = store
        self.device = device
        self.final_norm = final_norm
        self.waited_s = 0.0

    def read(self, windows: list[Window]) -> Batch:
        """`windows` one after another in a row; states in the store's dtype.

        The final states are as the head reads them: `final_norm` is applied where the store holds those before it.
        """
        packing = Packing.of([window.length for window in windows], self.device)
        total = packing.offsets[-1]
        properties = self.store.properties
        dtype = getattr(torch, properties.dtype)
        ids = torch.empty(1, total, dtype=torch.int64)
        mask = torch.empty(1, total, dtype=torch.bool)
        aux = torch.empty(1, total, properties.layer_count * properties.hidden_size, dtype=dtype)
        final = torch.empty(1, total, properties.hidden_size, dtype=dtype)
        for window, columns in zip(windows, packing.slices(), strict=True):
            sample = self.store.sample(window.sample)
            part = slice(window.start, window.stop)
            place = (0, columns)
            ids[place] = torch.from_numpy(np.array(sample.input_ids[part]))
            mask[place] = torch.from_numpy(np.array(sample.loss_mask[part]))
            aux[place] = as_tensor(sample.hidden_states[part], properties.dtype).flatten(1)
            final[place] = as_tensor(sample.final_hidden_states[part], properties.dtype)
        ids, mask, aux, final = (tensor.to(self.device) for tensor in (ids, mask, aux, final))
        return Batch(ids, mask, aux, final if self.final_norm is None else self.final_norm(final), packing=packing)

    def read_ahead(self, plan: Iterator[list[Window]]) -> Iterator[tuple[list[Window], Batch]]:
        """Each set of windows of `plan` with its batch; the time spent waiting adds up in `waited_s`."""
        with closing(_Ahead(self)) as ahead:
            ahead.ask(next(plan))
            while True:
                started = time.monotonic()
                windows, batch = ahead.take()
                self.waited_s += time.monotonic() - started
                ahead.ask(next(plan))
                yield windows, batch


class _Ahead:
    """One batch in the making."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")

    def ask(self, windows: list[Window]) -> None:
        self._windows = windows
        self._future = self._pool.submit(self._reader.read, windows)

    def take(self) -> tuple[list[Window], Batch]:
        return self._windows, self._future.result()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
