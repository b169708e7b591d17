"""What a store lacks and why: the record of it, and how often each reason is there."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from pathlib import Path

import msgspec

from remote.protocol.progress import QuarantineReason

QUARANTINE = "quarantine.jsonl"

_MOST_REASONS = 20
_NUMBER = re.compile(r"\d[\d.,]*(?<=\d)")


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A sample that was to be in the store and is not, and why."""

    sample_id: str
    reason: str


def read_quarantine(directory: Path) -> list[Quarantined]:
    """What was left out of a store, finished or not; a line that is still being written is passed over."""
    try:
        lines = (directory / QUARANTINE).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Quarantined) for line in lines if line.endswith(b"\n")]


def count_reasons(entries: Iterable[Quarantined]) -> list[QuarantineReason]:
    """The most frequent reasons, at most 20; those that differ in nothing but numbers count as one."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        alike.setdefault(tuple(_NUMBER.split(entry.reason)), []).append(entry.reason)
    ordered = sorted(alike.values(), key=lambda reasons: (-len(reasons), reasons[0]))
    return [
        QuarantineReason(reason=_in_common(reasons), samples=len(reasons)) for reasons in islice(ordered, _MOST_REASONS)
    ]


def _in_common(reasons: Sequence[str]) -> str:
    """The reason with those of its numbers that all have."""
    words = _NUMBER.split(reasons[0])
    columns = zip(*(_NUMBER.findall(reason) for reason in reasons), strict=True)
    numbers = [column[0] if len(set(column)) == 1 else "…" for column in columns]
    return "".join(word + number for word, number in zip_longest(words, numbers, fillvalue=""))
