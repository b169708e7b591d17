"""Points in time as people write them, and stretches of a recording in which nothing was recorded."""

import re
import time
from datetime import datetime
from typing import NamedTuple

from remote.protocol.telemetry import TelemetrySample

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])\Z")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_AGO_S = 50 * 365 * 86_400.0
_MISSED = 2.5
"""A reading that comes later than this many periods leaves a gap behind it."""


class Ago(NamedTuple):
    """A moment that is counted back from now on the host's clock."""

    seconds: float


def parse_moment(text: str) -> float | Ago:
    """`2026-11-29T15:06:40Z` -> seconds since the epoch, `10m` -> Ago(600); raises ValueError with what is wrong."""
    ago = _AGO.match(text.strip())
    if ago is not None:
        seconds = float(ago[1]) * _UNIT_S[ago[2]]
        if seconds > _LONGEST_AGO_S:
            raise ValueError(f"{text!r} is longer ago than anything was recorded")
        return Ago(seconds)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time: say 10m, 2h or 3d ago, or such as 2026-11-29T15:06:40Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone: add Z for UTC, or such as +02:00")
    if moment.timestamp() < 0:
        raise ValueError(f"{text!r} is longer ago than anything was recorded")
    return moment.timestamp()


def moment_on(moment: float | Ago, host_now: float) -> float:
    """Seconds since the epoch, with "ago" counted from `host_now`."""
    return host_now - moment.seconds if isinstance(moment, Ago) else moment


def format_moment(at: float) -> str:
    """`2026-11-29T15:06:40Z`, as `parse_moment` takes it; `no known time` for what no clock shows."""
    return _formatted("%Y-%m-%dT%H:%M:%SZ", at)


def format_clock(at: float) -> str:
    """`15:06:40`, in UTC."""
    return _formatted("%H:%M:%S", at)


def _formatted(pattern: str, at: float) -> str:
    try:
        return time.strftime(pattern, time.gmtime(at))
    except (OverflowError, ValueError, OSError):
        return "no known time"


def leaves_gap(before: float, sample: TelemetrySample, step_s: float) -> bool:
    """Whether nothing was recorded between the moment `before` and what `sample` stands for, with samples every `step_s`."""
    return sample.sampled_at - before > _MISSED * max(step_s, sample.period_s, 1.0)
