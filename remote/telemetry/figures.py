"""Figures as they stand in a sentence; pure."""

from collections.abc import Iterable

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def bytes_text(count: float) -> str:
    """`1536` -> `1.5 KiB`."""
    value = float(count)
    for unit in _BYTE_UNITS[:-1]:
        if abs(value) < 1023.95:
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 99.95 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_BYTE_UNITS[-1]}"


def duration_text(seconds: float) -> str:
    """`45` -> `45 s`, `540` -> `9 min`, `10260` -> `2 h 51 min`, `200000` -> `2 d 7 h`."""
    whole = max(0, round(seconds))
    if whole < 2 * _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def share_text(fraction: float) -> str:
    """`0.415` -> `42%`."""
    return f"{fraction:.0%}"


def range_text(fractions: Iterable[float]) -> str:
    """`0.93, 1.0` -> `93% to 100%`; one figure where they do not differ as they are shown. At least one fraction."""
    every = sorted(fractions)
    low, high = share_text(every[0]), share_text(every[-1])
    return low if low == high else f"{low} to {high}"


def megahertz_text(hertz: float) -> str:
    """`2.1e9` -> `2100 MHz`."""
    return f"{hertz / 1e6:.0f} MHz"


def list_text(words: Iterable[object]) -> str:
    """`1, 2, 3` -> `1, 2 and 3`."""
    every = [str(word) for word in words]
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}" if every else ""


def joined(*parts: str | None) -> str:
    """The parts that are known, one after the other."""
    return ", ".join(part for part in parts if part)
