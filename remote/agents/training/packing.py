"""Windows one after another in a row, none of which sees another: nothing is computed for padding."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor


class Block(NamedTuple):
    """Queries `start` to `stop`, which see keys from `first` on; `mixed` ones are of several windows."""

    first: int
    start: int
    stop: int
    mixed: bool


@dataclass(frozen=True)
class Packing:
    """Where the windows of a row of T tokens lie: `offsets` has where each begins, and T.

    `starts` int64 [T]: where the window of each token begins; `lasts` int64 [windows]: the last token of each.
    """

    offsets: list[int]
    starts: Tensor
    lasts: Tensor

    @classmethod
    def of(cls, lengths: list[int], device: torch.device) -> "Packing":
        """That of windows with these lengths."""
        offsets = list(accumulate(lengths, initial=0))
        begins = torch.tensor(offsets[:-1])
        starts = begins.repeat_interleave(torch.tensor(lengths))
        return cls(offsets, starts.to(device), (torch.tensor(offsets[1:]) - 1).to(device))

    def blocks(self, size: int) -> Iterator[Block]:
        """The row in blocks of at most `size` queries that fit its windows: of one window, or of several that are small."""
        small: list[slice] = []
        for window in self.slices():
            if small and window.stop - small[0].start > size // 2:
                yield Block(small[0].start, small[0].start, small[-1].stop, len(small) > 1)
                small = []
            if window.stop - window.start <= size // 2:
                small.append(window)
            else:
                for start in range(window.start, window.stop, size):
                    yield Block(window.start, start, min(start + size, window.stop), mixed=False)
        if small:
            yield Block(small[0].start, small[0].start, small[-1].stop, len(small) > 1)

    def slices(self) -> list[slice]:
        """The places of the windows in the row."""
        return [slice(start, stop) for start, stop in zip(self.offsets, self.offsets[1:], strict=False)]
