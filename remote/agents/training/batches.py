"""Which tokens are trained on together, pure: windows of the store's samples, and their order by seed and epoch."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NEIGHBOURS = 256
"""Windows that batches are filled from together, the longest first: little room is left, and the order is still a shuffled one."""

_HELD_OUT_SHARE = 20
_HELD_OUT_MOST = 64


@dataclass(frozen=True)
class Window:
    """Tokens `[start, stop)` of a sample of the store."""

    sample: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Tokens in the window."""
        return self.stop - self.start


def cut_windows(sample: int, loss_mask: Sequence[bool], sequence_length: int) -> list[Window]:
    """A sample cut into windows of at most `sequence_length` tokens, without those that have nothing to learn from.

    The first token of a window is no target of its own window, so a window counts only by the mask after it.
    """
    windows: list[Window] = []
    for start in range(0, len(loss_mask), sequence_length):
        stop = min(start + sequence_length, len(loss_mask))
        if any(loss_mask[start + 1 : stop]):
            windows.append(Window(sample, start, stop))
    return windows


@dataclass(frozen=True)
class HeldOut:
    """Samples that are kept from training: on some a checkpoint is chosen, on the others it is reported how good that one is.

    Of many drafters the one that did best on some text did well on it by luck, too.
    """

    choosing: list[int]
    reporting: list[int]


def held_out_samples(samples: int) -> HeldOut:
    """The samples of a store of `samples` that are kept from training to measure on: a twentieth, at most 64.

    They lie evenly over the store, because conversations often come sorted by subject; every other one is reported on.
    """
    count = min(_HELD_OUT_MOST, samples // _HELD_OUT_SHARE)
    places = [(2 * number + 1) * samples // (2 * count) for number in range(count)]
    return HeldOut(places[::2], places[1::2])


def _pack(windows: list[Window], batch_tokens: int) -> list[list[Window]]:
    batches: list[list[Window]] = []
    rooms: list[int] = []
    for window in sorted(windows, key=lambda window: -window.length):
        place = next((place for place, room in enumerate(rooms) if window.length <= room), len(rooms))
        if place == len(rooms):
            batches.append([])
            rooms.append(batch_tokens)
        batches[place].append(window)
        rooms[place] -= window.length
    return batches


def plan_epoch(windows: Sequence[Window], *, batch_tokens: int, seed: int, epoch: int) -> list[list[Window]]:
    """All windows once, in batches of at most `batch_tokens` tokens (a longer window is a batch alone).

    The order depends on `seed` and `epoch` alone.
    """
    source = random.Random(f"{seed}/{epoch}")  # noqa: S311 - an order, not a secret
    order = list(windows)
    source.shuffle(order)
    batches: list[list[Window]] = []
    for first in range(0, len(order), _NEIGHBOURS):
        batches += _pack(order[first : first + _NEIGHBOURS], batch_tokens)
    source.shuffle(batches)
    return batches


def batches_from(windows: Sequence[Window], *, batch_tokens: int, seed: int, first: int) -> Iterator[list[Window]]:
    """The endless sequence of batches, epoch after epoch, from batch number `first` on; the same whoever resumes it."""
    epoch = 0
    passed = 0
    while True:
        batches = plan_epoch(windows, batch_tokens=batch_tokens, seed=seed, epoch=epoch)
        if passed + len(batches) > first:
            yield from batches[max(0, first - passed) :]
        passed += len(batches)
        epoch += 1
