"""Curves in every room that a terminal may leave them."""

from itertools import product

import pytest

from console.ui.themes import load_themes
from console.ui.widgets.charts import Curve, _stacked
from console.ui.widgets.palette import Palette

NAMES = (
    ("training loss", "loss", "5.26"),
    ("accuracy of the 1st draft token", "1st draft token", "69%"),
    ("prefill", "prefill", "777 tok/s"),
    ("decode", "decode", "13.2 tok/s"),
    ("acceptance length", "acceptance", "1.62"),
)


@pytest.fixture(scope="module")
def palette() -> Palette:
    theme = load_themes().themes[0]
    colors = {name: getattr(theme, name) for name in ("primary", "accent", "foreground", "success", "warning", "error")}
    return Palette.from_variables({**colors, **theme.variables})


@pytest.mark.parametrize("count", range(1, 6))
def test_they_fit_into_every_room_and_keep_their_values(palette, count) -> None:
    curves = [
        Curve(label, short, last, [0.0, 1.0, None, 3.0] * 30, 0.0, "accent") for label, short, last in NAMES[:count]
    ]
    for width, rows in product(range(54, 201, 7), range(4, 45, 3)):
        lines = _stacked(curves, width, rows, palette).plain.split("\n")
        assert len(lines) <= rows
        assert len(lines) == 1 or max(map(len, lines)) <= width
        if len(lines) > 1:
            assert all(curve.last in "\n".join(lines) for curve in curves)
