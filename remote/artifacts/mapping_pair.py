"""What can be wrong with the values of a mapping: the offsets and the mask, alone and together; pure."""

from collections.abc import Iterator

import numpy as np

from remote.artifacts.mapping_arrays import CONVERT, REBUILD, Array, error, warning
from remote.protocol.reports import Finding

REPAIRABLE = frozenset({"dtype-int32", "byte-order-wrong", "fortran-order", "absolute-ids", "unsorted"})
"""Codes of what a conversion puts right, for it leaves no doubt which tokens are meant."""

_RANKED = "d2t is in the order of frequency, as ModelOpt writes it: what reads it with a mask would pair its rows with other tokens"
_RANKED_FIX = f"{CONVERT}, ascending; a drafter that was trained with the old order keeps that one"


def meant_ids(d2t: Array, t2d: Array | None, vocab_size: int | None = None) -> Array:
    """The target ids that a d2t names: int64 [D] in its order.

    Also where it provably holds ids instead of offsets, or where the mask says that the bytes of its numbers are swapped.
    """
    if t2d is not None and _is_swapped(d2t, np.flatnonzero(t2d)):
        d2t = d2t.byteswap()
    return d2t if _holds_ids(d2t, t2d, vocab_size) else d2t + np.arange(len(d2t))


def check_pair(d2t: Array, t2d: Array) -> list[Finding]:
    """What is wrong with the offsets `d2t` int64 [D] and the mask `t2d` bool [V], alone and together."""
    draft, vocab = len(d2t), len(t2d)
    if draft == 0 or draft > vocab:
        return [error("size-wrong", f"d2t has {draft} entries for a target vocabulary of {vocab}")]
    named = _name_the_mistake(d2t, np.flatnonzero(t2d))
    return [named] if named is not None else [*_check_offsets(d2t, vocab), *_check_mask(d2t, t2d)]


def check_alone(d2t: Array, vocab_size: int | None) -> list[Finding]:
    """What is wrong with a `d2t` int64 [D] that has no mask beside it and may be in any order, as ModelOpt keeps it."""
    if not len(d2t) or (vocab_size is not None and len(d2t) > vocab_size):
        return [error("size-wrong", f"d2t has {len(d2t)} entries for a target vocabulary of {vocab_size}")]
    if _holds_ids(d2t, None, vocab_size):
        return [absolute_ids()]
    if len(d2t) > 1 and not d2t.any():
        return [
            warning("all-zero", f"d2t is zero throughout and means the first {len(d2t)} tokens: {_UNFILLED}", REBUILD)
        ]
    ids = d2t + np.arange(len(d2t))
    findings = list(_check_range(ids, vocab_size))
    if len(np.unique(ids)) < len(ids):
        findings.append(
            error("id-twice", f"{len(ids) - len(np.unique(ids))} draft ids map to a token that another has")
        )
    elif not findings and len(ids) > 1 and (np.diff(ids) < 0).any():
        findings.append(warning("unsorted", _RANKED, _RANKED_FIX))
    elif not findings and len(ids) > 2 and (np.diff(d2t) > 0).all():
        message = "no two of its tokens are neighbours: it may hold absolute ids instead of offsets"
        findings.append(warning("absolute-suspected", message, "compare it with the mask that belongs to it"))
    return findings


_UNFILLED = "a trainer's buffer that nobody filled looks like this"


def absolute_ids() -> Finding:
    """That a d2t holds the target's ids themselves."""
    return error(
        "absolute-ids",
        "d2t holds absolute target ids, not offsets: a server would propose wrong tokens without an error",
        f"subtract arange: d2t = d2t - arange(len(d2t)); {CONVERT}",
    )


def _holds_ids(d2t: Array, t2d: Array | None, vocab_size: int | None) -> bool:
    """Whether a d2t makes sense as ids and none as offsets."""
    if t2d is not None:
        marked = np.flatnonzero(t2d)
        return np.array_equal(np.sort(d2t), marked) and not np.array_equal(np.sort(d2t + np.arange(len(d2t))), marked)
    ids = d2t + np.arange(len(d2t))
    as_offsets = ids.min() >= 0 and len(np.unique(ids)) == len(ids) and (vocab_size is None or ids.max() < vocab_size)
    if vocab_size is not None and d2t.max() >= vocab_size:
        return False
    return not as_offsets and bool(d2t.min() >= 0) and len(np.unique(d2t)) == len(d2t)


def _name_the_mistake(d2t: Array, marked: Array) -> Finding | None:
    """The one mistake that explains all, if the mask proves it."""
    ids = d2t + np.arange(len(d2t))
    if len(marked) != len(d2t) or np.array_equal(ids, marked):
        return None
    if np.array_equal(np.sort(d2t), marked):
        return absolute_ids()
    if _is_swapped(d2t, marked):
        message = "the bytes of d2t's numbers are in the wrong order, whatever its header says"
        return error("byte-order-wrong", message, CONVERT)
    if not d2t.any():
        message = f"d2t is zero throughout, t2d marks other tokens than the first {len(d2t)}: {_UNFILLED}"
        return error("all-zero", message)
    return error("unsorted", _RANKED, _RANKED_FIX) if np.array_equal(np.sort(ids), marked) else None


def _is_swapped(d2t: Array, marked: Array) -> bool:
    if len(marked) != len(d2t) or np.array_equal(d2t + np.arange(len(d2t)), marked):
        return False
    return np.array_equal(d2t.byteswap() + np.arange(len(d2t)), marked)


def _check_offsets(d2t: Array, vocab: int) -> Iterator[Finding]:
    yield from _check_range(d2t + np.arange(len(d2t)), vocab)
    if d2t.min() < 0:
        yield error("offset-negative", f"d2t[{int(d2t.argmin())}] = {int(d2t.min())}; offsets are never negative")
    falls = np.flatnonzero(d2t[1:] < d2t[:-1]) + 1
    if len(falls):
        place = int(falls[0])
        if d2t[place:].any():
            yield error("offset-decreasing", f"d2t falls at draft id {place}; offsets never decrease")
        else:
            yield error("zero-tail", f"d2t is zero from draft id {place} to its end: a write that broke off")


def _check_range(ids: Array, vocab: int | None) -> Iterator[Finding]:
    if ids.min() < 0:
        yield error("id-out-of-range", f"draft id {int(ids.argmin())} maps to {int(ids.min())}")
    if vocab is not None and ids.max() >= vocab:
        message = f"draft id {int(ids.argmax())} maps to {int(ids.max())}, the target has {vocab} tokens"
        yield error("id-out-of-range", message)


def _check_mask(d2t: Array, t2d: Array) -> Iterator[Finding]:
    marked, ids = np.flatnonzero(t2d), d2t + np.arange(len(d2t))
    if len(marked) < len(ids) and np.array_equal(marked, ids[: len(marked)]):
        last = int(marked[-1]) if len(marked) else -1
        yield error("zero-tail", f"t2d marks nothing after token {last}, d2t does: a write that broke off")
    elif len(marked) != len(ids):
        yield error("mask-count", f"t2d marks {len(marked)} tokens, d2t has {len(ids)} entries")
    elif not np.array_equal(marked, ids):
        place = int(np.flatnonzero(marked != ids)[0])
        message = f"draft id {place} maps to {int(ids[place])} by d2t and to {int(marked[place])} by t2d"
        yield error(
            "mask-mismatch", message, "the two belong to different mappings: build it again, or copy a sound one"
        )
