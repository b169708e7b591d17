"""What keys do: nothing changes on the host before a person has seen what will happen and said yes."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from protocol_samples import APPROVAL

from console.errors import ConnectionFailed
from console.ui.app import RoostApp
from console.ui.keymap import ACTIONS
from console.ui.screens.dialogs import Confirm, Notice, PlanDialog
from console.ui.screens.log import LogScreen
from console.ui.widgets.log_pane import LogPane
from remote.protocol.frames import ApprovalsWaiting, JobChanged, LogData

TRAINING = 180.0


async def test_stop_names_job_and_host_and_no_is_the_default(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("s")
        await screen.until_shown(
            "Stop training",
            "-training on embedded?",
            "$ roost stop run-embedded",
            "It works for run-embedded",
            "No (n)",
            "Stop it (y)",
        )
        await screen.pilot.press("enter")
        await screen.until(lambda: not isinstance(screen.app.screen, Confirm))
        assert screen.session.stopped == []
        await screen.pilot.press("s")
        await screen.until_shown("Stop it (y)")
        await screen.pilot.press("y")
        await screen.until(lambda: bool(screen.session.stopped))
        assert screen.session.stopped[0].endswith("-training")


async def test_stopping_a_run_says_which_jobs_go_with_it(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("up", "s")
        await screen.until_shown("Stop run run-embedded", "Its jobs stop with it: training.")


async def test_a_run_starts_only_after_its_plan_was_seen(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press("r")
        await screen.until_shown("name of a preset")
        await screen.pilot.press("enter")
        await screen.until_shown("Run embedded on embedded", "run  training", "on disk", "Start (Enter)")
        assert screen.session.started == []
        await screen.pilot.press("enter")
        await screen.until(lambda: screen.session.started == ["embedded"])


async def test_escape_at_the_plan_starts_nothing(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press("r")
        await screen.until_shown("name of a preset")
        await screen.pilot.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, PlanDialog))
        await screen.pilot.press("escape")
        await screen.until(lambda: not isinstance(screen.app.screen, PlanDialog))
        assert screen.session.started == []


async def test_a_log_stops_following_when_scrolled_up_and_says_so(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("l")
        await screen.until(lambda: isinstance(screen.app.screen, LogScreen) and "step 225/400" in screen.text)
        pane = screen.app.screen.query_one(LogPane)
        pane.focus()
        await screen.pilot.press("pageup")
        await screen.until_shown("NOT FOLLOWING, f goes to the end")
        top = pane.scroll_y
        job = screen.app.shown_job()
        cursor = screen.app._state.logs[job.job_id].cursor
        await screen.send(LogData(job_id=job.job_id, offset=cursor, data=b"a new line\n"))
        await screen.until(lambda: screen.app._state.logs[job.job_id].cursor > cursor)
        assert pane.scroll_y == top
        await screen.pilot.press("f")
        await screen.until_shown("a new line")
        assert "NOT FOLLOWING" not in screen.text
        await screen.pilot.press("escape")
        await screen.until(lambda: not isinstance(screen.app.screen, LogScreen))


async def test_the_command_is_the_exact_one(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(160, 45)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("c")
        await screen.until_shown("engine/bin/python -m remote.agents.training.worker")


async def test_help_and_palette_offer_every_action_of_the_table(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(160, 90)) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press("question_mark")
        await screen.until(lambda: isinstance(screen.app.screen, Notice))
        assert all(action.help in screen.text for action in ACTIONS)
        await screen.pilot.press("escape")
        await screen.pilot.press("ctrl+p")
        await screen.until_shown(*(action.help for action in ACTIONS))


async def test_keys_that_would_do_nothing_are_off(embedded_run, show) -> None:
    async with show(embedded_run, until=510.0, size=(80, 24)) as screen:
        await screen.until_shown("✓ promote")
        assert screen.app.check_action("stop", ()) is False
        assert screen.app.check_action("verdict", ()) is True
        await screen.pilot.press("s")
        await screen.pilot.pause()
        assert not isinstance(screen.app.screen, Confirm)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("g", "No GPU here: no NVIDIA driver is installed"),
        ("v", "Run embedded is at work: its verdict comes at its end."),
        ("f", "The log follows its end already."),
    ],
)
async def test_a_key_that_does_nothing_says_why(embedded_run, show, key, reason) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press(key)
        await screen.until(lambda: any(reason in notice.message for notice in screen.app._notifications))


async def test_before_anything_ran_log_and_verdict_say_what_brings_them(embedded_run, show) -> None:
    beginning = [record for record in embedded_run if record.at < 1.0 and not isinstance(record.what, JobChanged)]
    async with show(beginning, until=1.0, size=(80, 24)) as screen:
        await screen.until_shown("no run yet")
        for key in "lvcs":
            screen.app.clear_notifications()
            await screen.pilot.press(key)
            await screen.until(lambda: any("press r" in notice.message for notice in screen.app._notifications))


async def test_a_host_that_no_new_attempt_can_reach_is_told_with_what_to_do() -> None:
    @asynccontextmanager
    async def refuse():
        raise ConnectionFailed("10.0.0.1:22 refused the login", hint="is the key right?", retryable=False)
        yield

    app = RoostApp("lab", refuse)
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(400):
            await pilot.pause()
            if isinstance(app.screen, Notice):
                break
        text = "\n".join("".join(piece.text for piece in strip) for strip in app.screen._compositor.render_strips())
        assert "10.0.0.1:22 refused the login" in text
        assert "is the key right?" in text
        assert "link closed" in text


async def test_quitting_ends_with_code_0(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press("q")
    assert screen.app.return_value == 0
    assert [job.agent for job in screen.app.feed.jobs_at_work] == ["run", "training"]


async def test_what_waits_for_a_person_is_counted_shown_in_full_and_answered(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(80, 24)) as screen:
        second = msgspec.structs.replace(APPROVAL, approval_id="approval-2", subject="run-2")
        screen.session.approvals = [APPROVAL, second]
        await screen.until_shown("● connected")
        await screen.send(ApprovalsWaiting(count=2, changed_at=1.0))
        await screen.until_shown("? 2 to approve")
        await screen.pilot.press("a")
        await screen.until_shown("▸ ? waiting", "mcp:planner", "wrong data", "fingerprint", APPROVAL.fingerprint)
        await screen.pilot.press("n")
        await screen.until_shown("approval-2  waits for a person")
        await screen.pilot.press("p")
        await screen.until_shown("Approve approval-2?", "roost approvals approve approval-2", "No (n)")
        await screen.pilot.press("enter")
        await screen.until(lambda: not isinstance(screen.app.screen, Confirm))
        assert screen.session.decided == []
        await screen.pilot.press("x")
        await screen.until_shown("Refuse it (y)")
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.decided == [("approval-2", False)])
        screen.session.approvals = [msgspec.structs.replace(APPROVAL, state="refused", decided_by="screen")]
        await screen.send(ApprovalsWaiting(count=0, changed_at=2.0))
        await screen.until_shown("refused by screen")
        assert "to approve" not in screen.text
        await screen.pilot.press("escape")
        await screen.until_shown("step 225/400  loss")
