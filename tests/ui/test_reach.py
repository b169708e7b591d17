"""Everything can be reached: by a letter in jump mode, by the mouse, and what has the keyboard explains itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.containers import VerticalScroll
from textual.geometry import Offset
from textual.widgets import Button, DataTable, Input

from console.ui.keymap import ACTIONS, APPROVAL_ACTIONS, LOG_ACTIONS, VOCABULARY_ACTIONS
from console.ui.screens.dialogs import AskLine
from console.ui.screens.jump import JumpScreen, labels, targets
from console.ui.widgets.alert_line import AlertLine
from console.ui.widgets.devices import Devices
from console.ui.widgets.jobs_table import JobsTable
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.log_pane import LogPane
from console.ui.widgets.stage_strip import StageStrip
from console.ui.widgets.top_bar import TopBar

TRAINING = 180.0
PREFIXES = {"ctrl+a", "ctrl+b"}


@given(st.integers(0, 900))
def test_labels_are_different_and_none_begins_another(count: int) -> None:
    found = labels(count)
    assert len(set(found)) == count
    assert len({len(label) for label in found}) <= 1


def test_no_key_is_the_prefix_of_tmux_or_screen() -> None:
    actions = (*ACTIONS, *LOG_ACTIONS, *VOCABULARY_ACTIONS, *APPROVAL_ACTIONS)
    assert not {action.key for action in actions} & PREFIXES


async def jump_to(screen, wanted) -> None:
    """Type the label that stands at the region of `wanted` (column, row)."""
    found = targets(screen.app.screen)
    label = labels(len(found))[next(place for place, target in enumerate(found) if target.at == wanted)]
    await screen.pilot.press("j")
    await screen.until(lambda: isinstance(screen.app.screen, JumpScreen))
    await screen.pilot.press(*label)
    await screen.until(lambda: not isinstance(screen.app.screen, JumpScreen))


async def test_a_letter_goes_to_a_pane_a_row_and_a_page(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("● connected", "step 225/400  loss")
        app = screen.app
        await jump_to(screen, app.screen.query_one(LogPane).region.offset)
        await screen.until(lambda: isinstance(app.focused, LogPane))
        table = app.screen.query_one(JobsTable)
        await jump_to(screen, table.content_region.offset + Offset(0, 3))
        await screen.until(lambda: app.focused is table and table.cursor_row == 2)
        await screen.until(lambda: app.feed.selected == list(app.screen.query_one(JobsTable)._shown)[2])
        tabs = app.screen.query(".page-tabs").first()
        await jump_to(screen, tabs.region.offset + Offset(tabs.starts[6][0], 0))
        await screen.until_shown("▸7 Server")


async def test_every_label_of_a_long_table_is_seen_and_another_key_goes_back(eight_gpus, show) -> None:
    async with show(eight_gpus, until=295.0, size=(80, 24), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "▶ running")
        regions = {target.at for target in targets(screen.app.screen)}
        assert len(regions) == len(targets(screen.app.screen)) >= 5
        await screen.pilot.press("j")
        await screen.until_shown("Type a letter to go there")
        await screen.pilot.press("escape")
        await screen.until(lambda: not isinstance(screen.app.screen, JumpScreen))


@pytest.mark.parametrize(
    ("keys", "kind", "words"),
    [
        ((), JobsTable, ("The jobs of the host", "Show the whole log")),
        (("6",), DataTable, ("The page Storage: what lies on the host's disks", "A table:")),
        (("2",), VerticalScroll, ("The page Pipeline: the newest run", "A text.", "Overview")),
        (("r",), Input, ("A dialog:", "A line to type on.")),
    ],
)
async def test_f1_explains_what_has_the_keyboard_and_once_more_closes_it(embedded_run, show, keys, kind, words) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("● connected", "step 225/400  loss")
        await screen.pilot.press(*keys)
        await screen.until(lambda: type(screen.app.focused) is kind)
        before = screen.app.screen
        await screen.pilot.press("f1")
        await screen.until_shown("Help here", *words, "jumps by letters")
        await screen.pilot.press("f1")
        await screen.until(lambda: screen.app.screen is before)


async def test_what_is_shown_can_be_clicked(eight_gpus, show) -> None:
    async with show(eight_gpus, until=295.0, size=(120, 35), host="rtx-lab") as screen:
        await screen.until_shown("GPU 7", "▶ running")
        for kind, words in ((Devices, "─ GPUs ─"), (AlertLine, "─ Diagnoses ─"), (StageStrip, "▸2 Pipeline")):
            await screen.pilot.click(kind)
            await screen.until_shown(words)
            await screen.pilot.press("escape")
            await screen.until_shown("▸1 Overview")
        await screen.pilot.click(TopBar)
        await screen.until_shown("Plan a run and start it")
        await screen.pilot.press("escape")


async def test_the_footer_opens_the_pages_by_a_click_and_has_only_keys_that_do_something(embedded_run, show) -> None:
    async with show(embedded_run, until=0.0, size=(80, 24)) as screen:
        await screen.until_shown("1-8 Pages")
        app = screen.app
        shown = {key.action for key in app.screen.query_one(KeyLine).query("FooterKey")}
        assert shown
        assert not {action for action in shown if app._why_not(action) is not None}
        await screen.pilot.click(KeyLine, offset=(4, 0))
        await screen.until_shown("Vocabulary (5)")
        await screen.pilot.press(*"stor", "enter")
        await screen.until_shown("▸6 Sto")


async def test_a_question_is_answered_by_the_mouse(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(100, 30)) as screen:
        await screen.until_shown("● connected")
        answers = []
        for button, wanted in (("#take", "kimi"), ("#cancel", None)):
            screen.app.push_screen(AskLine("Run", "What?", "kimi", then="Enter plans it."), callback=answers.append)
            await screen.until(lambda: bool(screen.app.screen.query(Button)))
            await screen.until(lambda: isinstance(screen.app.focused, Input))
            await screen.pilot.click(button)
            await screen.until(lambda: not screen.app.screen.query(Button))
            assert answers[-1] == wanted


@pytest.mark.parametrize("keys", [("3", "slash"), ("ctrl+p",)])
async def test_the_cursor_of_a_line_to_type_on_does_not_blink(embedded_run, show, keys) -> None:
    async with show(embedded_run, until=TRAINING, size=(100, 30)) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press(*keys)
        await screen.until(lambda: isinstance(screen.app.focused, Input) and not screen.app.focused.cursor_blink)
        assert screen.app.focused._cursor_visible
        assert not screen.app.focused._blink_timer._active.is_set()
