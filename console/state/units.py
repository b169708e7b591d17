"""Numbers for people; code keeps bytes, seconds and fractions. None is shown as a dash, never as zero."""

UNKNOWN = "–"

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_RATE_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86_400


def format_bytes(count: float | None) -> str:
    """`1536` -> `1.5 KiB`; three significant figures at most."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in _BYTE_UNITS:
        if abs(value) < 1024 or unit == _BYTE_UNITS[-1]:
            digits = 0 if unit == "B" or abs(value) >= 99.95 else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    raise AssertionError


def format_count(count: float | None) -> str:
    """`41200` -> `41.2k`."""
    if count is None:
        return UNKNOWN
    for scale, suffix in _RATE_UNITS:
        if abs(count) >= scale:
            return f"{count / scale:.3g}{suffix}"
    return f"{count:.3g}" if count != int(count) else f"{int(count)}"


def format_loss(loss: float | None) -> str:
    """Three digits; a training step without a loss had one that is not finite."""
    return "not finite" if loss is None else f"{loss:.3f}"


def format_rate(per_second: float | None, unit: str) -> str:
    """`41200, "tok"` -> `41.2k tok/s`."""
    return UNKNOWN if per_second is None else f"{format_count(per_second)} {unit}/s"


def format_byte_rate(per_second: float | None) -> str:
    """`+2.1 GiB/s`, with its sign because disks also empty."""
    if per_second is None:
        return UNKNOWN
    sign = "+" if per_second > 0 else "-" if per_second < 0 else ""
    return f"{sign}{format_bytes(abs(per_second))}/s"


def format_restarts(count: int) -> str:
    """`0` -> nothing, `1` -> `, restarted once`, `3` -> `, restarted 3 times`."""
    return "" if not count else ", restarted once" if count == 1 else f", restarted {count} times"


def format_duration(seconds: float | None) -> str:
    """`9` -> `9 s`, `171` -> `2:51`, `10260` -> `2:51 h`, `200000` -> `2 d 7 h`."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, round(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}:{whole % _MINUTE_S:02d}"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}:{whole % _HOUR_S // _MINUTE_S:02d} h"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def format_percent(fraction: float | None) -> str:
    """`0.415` -> `42%`."""
    return UNKNOWN if fraction is None else f"{fraction:.0%}"
