"""No word from outside is taken for markup: not in titles, dialogs, messages, tables, nor in a log; colours of a log are shown."""

import msgspec
import pytest

from console.errors import ConnectionFailed
from console.ui.screens.dialogs import Notice, PlanDialog, error_text
from console.ui.texts import verdict_text
from console.ui.widgets.log_drawing import colored
from console.ui.widgets.log_pane import LogPane
from remote.protocol.frames import JobChanged, LogData
from remote.protocol.jobs import Job, Running
from remote.protocol.reports import RunPlan, VerdictReport

MARKUP = "[/red] [@click=app.quit]x[/] [b"
TRAINING = 180.0


async def show_log(screen, data: bytes) -> LogPane:
    job = Job(
        job_id="talker",
        agent="run",
        state=Running(since=0.0, pid=1),
        revision=1,
        created_at=1e12,
        created_by="ann",
        command=[MARKUP],
    )
    await screen.send(JobChanged(job=job))
    screen.app.feed.selected = "talker"
    await screen.until(lambda: "talker" in screen.app._state.logs)
    await screen.send(LogData(job_id="talker", offset=0, data=data))
    await screen.until_shown("log of talker")
    return screen.app.screen.query_one(LogPane)


async def test_comfy_cli_717_a_closing_tag_in_a_log_is_shown(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await show_log(screen, f"{MARKUP} and more\n".encode())
        await screen.until_shown(f"{MARKUP} and more")


async def test_titles_and_dialogs_show_markup_as_it_is(embedded_run, show) -> None:
    plan = next(record.what for record in embedded_run if isinstance(record.what, RunPlan))
    verdict = next(record.what for record in embedded_run if isinstance(record.what, VerdictReport))
    stages = [msgspec.structs.replace(stage, reason=MARKUP) for stage in plan.stages]
    plan = msgspec.structs.replace(plan, problems=[f"problem {MARKUP}"], directory=MARKUP, stages=stages)
    verdict = msgspec.structs.replace(verdict, reasons=[f"reason {MARKUP}"], advice=[f"advice {MARKUP}"])
    error = ConnectionFailed(f"message {MARKUP}", hint=f"hint {MARKUP}").info
    async with show(embedded_run, until=TRAINING, size=(140, 50), host=f"lab{MARKUP}") as screen:
        await screen.until_shown(f"lab{MARKUP}")
        for dialog, words in (
            (Notice(f"title {MARKUP}", error_text(error)), ("title", "message", "hint")),
            (PlanDialog(plan, f"host {MARKUP}", None), ("problem", "host")),
            (Notice("Verdict", verdict_text(verdict, "run-1", "lab")), ("reason", "advice")),
        ):
            screen.app.push_screen(dialog)
            await screen.until_shown(*(f"{word} {MARKUP}" for word in words))
            screen.app.pop_screen()


async def test_colours_of_a_log_are_shown_and_do_not_count_as_columns(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        pane = await show_log(screen, b"plain \x1b[38;2;1;2;3mcoloured\x1b[0m \x1b[8mhidden\n")
        await screen.until_shown("plain coloured hidden")
        pieces = {piece.text: piece.style for piece in pane.render_line(0)}
        assert pieces["coloured"].color.triplet == (1, 2, 3)
        assert not pieces["hidden"].conceal
        assert pane.render_line(0).cell_length == pane.scrollable_content_region.width


@pytest.mark.parametrize(
    ("line", "words"), [("\x1b[31mred", "red"), ("\x1b[mx\x1b[999;;;1my", "xy"), ("\x1b[38:2:1:2:3mz[/red]", "z[/red]")]
)
def test_any_colour_sequence_is_understood_or_left_out(line, words) -> None:
    assert colored(line).plain == words


async def test_no_color_drops_the_colours_of_a_log(embedded_run, show, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await show_log(screen, b"\x1b[38;2;255;2;3mcoloured words\n")
        await screen.until_shown("coloured words")
        assert screen.app.no_color
