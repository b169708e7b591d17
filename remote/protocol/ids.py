"""Names that travel: job ids, operation ids and the numbers of devices."""

import re
import secrets
import time
from collections.abc import Iterable
from typing import Annotated

import msgspec

_PATTERN = r"^[a-z0-9][a-z0-9-]{0,63}\Z"

JobId = Annotated[str, msgspec.Meta(pattern=_PATTERN)]
"""The name of a job and of its directory: lower-case letters, digits and dashes, at most 64 characters."""

OpId = Annotated[str, msgspec.Meta(pattern=_PATTERN)]
"""The idempotency key of a mutation: the same key never takes effect twice."""


def is_job_id(text: str) -> bool:
    """Whether `text` may name a job."""
    return re.match(_PATTERN, text) is not None


def new_job_id(stem: str) -> JobId:
    """A fresh id that sorts by its time of birth (UTC): `<stem>-<yymmdd>-<hhmmss>-<4 hex>`."""
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:36] or "job"
    return f"{slug}-{time.strftime('%y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


LONGEST_KEY = 40
"""The longest idempotency key of which the name of a job can be made."""


def keyed_job_id(stem: str, key: OpId) -> JobId:
    """The id that belongs to an idempotency key of at most 40 characters: the same every time."""
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower())[: 63 - len(key)].strip("-") or "job"
    return f"{slug}-{key}"


def new_op_id() -> OpId:
    """A fresh idempotency key: 16 hexadecimal characters."""
    return secrets.token_hex(8)


def device_ranges(indices: Iterable[int]) -> str:
    """Device numbers in few characters: `0-3, 6`."""
    parts: list[list[int]] = []
    for index in sorted(set(indices)):
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
