"""Numbers for people: right to the figures shown, and a dash where nothing is known."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.state.units import (
    UNKNOWN,
    format_byte_rate,
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_rate,
)

_SCALE = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}


@given(st.integers(0, 1 << 58))
def test_bytes_read_back_within_what_is_shown(count) -> None:
    number, unit = format_bytes(count).split(" ")
    assert float(number) * _SCALE[unit] == pytest.approx(count, rel=0.06, abs=0.5)
    assert len(number) <= 6


@given(st.floats(0, 10**7))
def test_durations_read_back_within_what_is_shown(seconds) -> None:
    shown = format_duration(seconds)
    match shown.split(" "):
        case [whole, "s"]:
            assert abs(int(whole) - seconds) <= 0.5
        case [clock]:
            minutes, rest = clock.split(":")
            assert abs(int(minutes) * 60 + int(rest) - seconds) <= 0.5
        case [clock, "h"]:
            hours, minutes = clock.split(":")
            assert 0 <= seconds + 0.5 - (int(hours) * 3600 + int(minutes) * 60) <= 60.5
        case [days, "d", hours, "h"]:
            assert 0 <= seconds + 0.5 - (int(days) * 86_400 + int(hours) * 3600) <= 3600.5
        case _:
            pytest.fail(f"{shown!r} is no duration")


@given(st.floats(0, 1e12))
def test_counts_are_short_and_read_back(count) -> None:
    shown = format_count(count)
    number = re.fullmatch(r"([0-9.e+-]+)([kMG]?)", shown)
    assert number is not None, shown
    value = float(number[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[number[2]]
    assert value == pytest.approx(count, rel=0.006, abs=0.5)


def test_the_unknown_is_a_dash_and_never_zero() -> None:
    assert {
        format_bytes(None),
        format_byte_rate(None),
        format_count(None),
        format_duration(None),
        format_percent(None),
        format_rate(None, "tok"),
    } == {UNKNOWN}


def test_examples() -> None:
    assert format_bytes(1536) == "1.5 KiB"
    assert format_duration(171) == "2:51"
    assert format_rate(41_200, "tok") == "41.2k tok/s"
    assert format_byte_rate(-2.5 * (1 << 30)) == "-2.5 GiB/s"
    assert format_percent(0.415) == "42%"
