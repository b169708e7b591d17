"""Plots on the training page: what is drawn where, what the keys and the pointer do, and what stands in words."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.state.plot_view import Newest
from console.state.plots import Curve, Plot, Point, Span, track
from console.state.units import format_count
from console.ui.keymap import PLOT_ACTIONS, key_name
from console.ui.widgets.plot_lines import draw
from console.ui.widgets.plots import Plots, arrange

SIZES = [(60, 20), (80, 24), (120, 35), (200, 50)]
BLANK = 0x2800


def dots(cells: list[str]) -> set[tuple[int, int]]:
    """The braille dots of lines of text, as (column, row) with row 0 at the bottom."""
    bits = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
    found = set()
    for y, line in enumerate(cells):
        for x, char in enumerate(line):
            code = 0 if char == " " else ord(char) - BLANK
            for down, across in product(range(4), range(2)):
                if code & bits[down][across]:
                    found.add((2 * x + across, 4 * (len(cells) - y) - 1 - down))
    return found


def drawn(values: list[float | None], width: int, height: int, *, low: float | None = None, is_log: bool = False):
    curve = Curve("x", "x", format_count, [Point(float(at), None, value) for at, value in enumerate(values)], "accent")
    span = Span(0.0, float(len(values) - 1))
    return draw(Plot("x", [curve], format_count, low), [track(curve, "time")], span, width, height, is_log=is_log)


def test_a_straight_line_is_straight_from_corner_to_corner() -> None:
    drawing = drawn([float(value) for value in range(20)], 10, 5)
    assert dots(drawing.cells) == {(at, at) for at in range(20)}
    assert (drawing.low, drawing.high) == (0.0, 19.0)


def test_on_a_logarithmic_scale_growth_by_a_factor_is_straight_and_zero_is_nowhere() -> None:
    drawing = drawn([2.0**power for power in range(20)], 10, 5, low=0.0, is_log=True)
    assert dots(drawing.cells) == {(at, at) for at in range(20)}
    assert drawing.low == pytest.approx(1.0)
    assert drawn([0.0, -1.0, 0.0], 10, 5, is_log=True) is None


@settings(deadline=None)
@given(
    st.lists(st.none() | st.floats(-1e6, 1e6), min_size=2, max_size=300),
    st.integers(4, 60),
    st.integers(1, 12),
)
def test_no_reading_however_short_is_left_out_and_nothing_is_drawn_in_a_gap(values, width, height) -> None:
    drawing = drawn(values, width, height)
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    if not known:
        assert drawing is None
        return
    found = dots(drawing.cells)
    last = len(values) - 1
    for at, value in known:
        row = (value - drawing.low) / (drawing.high - drawing.low) * (4 * height - 1)
        column = round(at / last * (2 * width - 1))
        assert any(x == column and abs(y - row) <= 0.5 + 1e-6 for x, y in found), (at, value)
    columns = {x for x, _ in found}
    for column in range(2 * width):
        touching = [value for at, value in enumerate(values) if abs(at / last * (2 * width - 1) - column) <= 0.5]
        if touching and all(value is None for value in touching):
            assert column not in columns


@given(st.integers(1, 12), st.integers(54, 250), st.integers(3, 80))
def test_plots_fit_into_every_room(count, width, rows) -> None:
    grid = arrange(count, width, rows)
    lines = -(-grid.shown // grid.columns)
    assert 1 <= grid.shown <= count
    assert grid.height >= 1
    assert lines * (grid.height + 2) <= rows
    assert grid.columns * grid.width + 2 * (grid.columns - 1) <= width


def board(screen) -> Plots:
    return screen.app.screen.query_one(Plots)


@pytest.mark.parametrize("size", SIZES)
async def test_the_page_fits_and_its_footer_has_every_key_that_it_tells(embedded_run, show, size) -> None:
    async with show(embedded_run, until=180.0, size=size) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("4")
        await screen.until_shown("training loss  8.", "accuracy  1st ", "UTC, 2:59", "or the pointer read values")
        shown = [action for action in PLOT_ACTIONS if action.in_footer]
        await screen.until(
            lambda: all(f"{key_name(each)}" in screen.lines[-1] for each in shown if not each.footer_key)
        )
        if size[0] >= 80:
            assert "q Quit" in screen.lines[-1]


async def test_the_cursor_reads_every_value_of_a_moment_in_words(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("4")
        await screen.until_shown("or the pointer read values")
        await screen.pilot.press("left", "left", "left")
        await screen.until_shown("UTC, step ", "training loss ", "1st draft token ", "prefill not known", "cores 100%")
        line = next(line for line in screen.lines if "UTC, step" in line)
        step = int(line.split("step ")[1].split(" ")[0])
        logged = {each.step.step: each.step for each in screen.app._state.training_curves().steps}
        assert f"training loss {logged[step].loss:.3f}" in line
        assert f"1st draft token {logged[step].accuracy[0]:.0%}" in line
        await screen.pilot.press("0")
        await screen.until(lambda: "UTC, step" not in screen.text)


async def test_zoom_shows_a_part_and_its_end_moves_with_the_readings(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("4")
        await screen.until_shown("11:22:37 to 11:25:36 UTC, 2:59")
        await screen.pilot.press("up")
        await screen.until_shown("to 11:25:36 UTC, 1:29 · a part, 0 shows all")
        assert board(screen)._view.seen == Newest(pytest.approx(89.7, abs=1.0))
        await screen.pilot.press("down")
        await screen.until_shown("11:22:37 to 11:25:36 UTC, 2:59")
        assert "a part" not in screen.text


async def test_along_the_steps_the_cursor_stays_where_it_was(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("4")
        await screen.until_shown("or the pointer read values")
        await screen.pilot.press(*["left"] * 6)
        await screen.until_shown("UTC, step ")
        before = next(line for line in screen.lines if "UTC, step" in line).split("step ")[1].split(" ")[0]
        await screen.pilot.press("x")
        await screen.until_shown(f"step {before} ", "steps 5 to 225")
        assert "prefill" not in screen.text, "what has no steps is not along them"
        await screen.pilot.press("x")
        await screen.until_shown(f"step {before} ", "prefill")


async def test_a_scale_may_be_logarithmic_and_one_plot_may_have_the_whole_room(embedded_run, show) -> None:
    async with show(embedded_run, until=180.0, size=(80, 24)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("4")
        await screen.until_shown("training loss", "prefill")
        await screen.pilot.press("y")
        await screen.until_shown("logarithmic: nothing of zero and below")
        await screen.pilot.press("z")
        await screen.until(lambda: "accuracy  " not in screen.text)
        assert "training loss" in screen.text
        for _ in board(screen)._shown:
            await screen.pilot.press("z")
        await screen.until_shown("training loss", "accuracy  ", "prefill")


@pytest.mark.parametrize("size", SIZES[1:])
async def test_the_pointer_reads_what_is_under_it_enlarges_and_zooms(eight_gpus, show, size) -> None:
    async with show(eight_gpus, until=295.0, size=size, host="rtx-lab") as screen:
        await screen.until_shown("GPU 7")
        await screen.pilot.press("4")
        await screen.until_shown("└", "✗ XID", "! throttled")
        row = next(at for at, line in enumerate(screen.lines) if "└" in line)
        column = screen.lines[row].index("✗")
        await screen.pilot.hover(offset=(column, row))
        await screen.until_shown("✗ GPU 6 XID 63: row remapping recorded", "UTC · prefill 2.")
        await screen.pilot.hover("#alerts")
        await screen.until_shown("or the pointer read values")
        await screen.pilot.click(offset=(column, row))
        await screen.until(lambda: sum("└" in line for line in screen.lines) == 1)
        await screen.pilot.click(offset=(column, row))
        await screen.until(lambda: board(screen)._view.alone is None)


async def test_keys_that_do_nothing_are_grey(eight_gpus, show) -> None:
    async with show(eight_gpus, until=295.0, size=(120, 35), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7")
        await screen.pilot.press("4")
        await screen.until_shown("GPU use")

        def enabled(action: str) -> bool:
            return screen.app.screen.active_bindings[
                next(each.key for each in PLOT_ACTIONS if each.action == action)
            ].enabled

        assert not enabled("toggle_axis"), "nothing here has steps"
        assert not enabled("show_all")
        await screen.pilot.press("up")
        await screen.until(lambda: enabled("show_all"))


async def test_before_anything_was_read_it_says_what_comes(embedded_run, show) -> None:
    records = [record for record in embedded_run if type(record.what).__name__ not in ("Telemetry", "ProgressMade")]
    async with show(records, until=180.0, size=(80, 24)) as screen:
        await screen.pilot.press("4")
        await screen.until_shown("curves of loss, accuracy, acceptance, tok/s and the GPUs appear here")
        await screen.pilot.press("left", "up", "y", "z", "x", "0")
        await screen.until_shown("curves of loss")
