"""Every plot is a sound SVG, the same for the same verdict, whatever the figures and names."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.report.plots import ACCEPTANCE, SPEEDUP, THROUGHPUT, draw_plots
from remote.protocol.reports import CategoryAcceptance
from tests.report.verdicts import level, verdict


def test_equal_verdicts_make_equal_plots() -> None:
    plots = draw_plots(verdict())
    assert set(plots) == {SPEEDUP, ACCEPTANCE, THROUGHPUT}
    assert draw_plots(verdict()) == plots
    for content in plots.values():
        assert ET.fromstring(content).tag.endswith("svg")


def test_what_was_not_measured_is_not_drawn() -> None:
    assert set(draw_plots(verdict(levels=[level(1, 1.2)], categories=[]))) == {SPEEDUP}
    assert draw_plots(verdict(levels=[], categories=[])) == {}


@pytest.mark.parametrize("name", ["$\\frac{1}{0}$", "数学", "a" * 400, "", "\x1b[31m", "<b>&"])
def test_a_category_of_any_name_is_drawn(name: str) -> None:
    categories = [CategoryAcceptance(category=name, prompts=1, verifications=1, acceptance_length=1.0)]
    plots = draw_plots(verdict(categories=categories, acceptance_length=1.0))
    assert ET.fromstring(plots[ACCEPTANCE]).tag.endswith("svg")


@settings(deadline=None, max_examples=10)
@given(st.lists(st.floats(0.01, 50), min_size=1, max_size=6))
def test_any_speedups_are_drawn(speedups: list[float]) -> None:
    levels = [level(4**power, speedup, wide=speedup / 3) for power, speedup in enumerate(speedups)]
    for content in draw_plots(verdict(levels=levels)).values():
        ET.fromstring(content)
