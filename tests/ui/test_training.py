"""The training's page: curves and checkpoints, another training beside them, and that nothing starts before a person saw what it means."""

import msgspec
import pytest

from console.ui.screens.dialogs import Confirm
from remote.protocol.frames import JobChanged, ProgressMade
from remote.protocol.jobs import Finished
from remote.protocol.progress import CheckpointSaved, DrafterMeasured, ProgressRecord, StepLogged, TrainingPhase
from tests.protocol.protocol_samples import TRAINING_SPEC

SIZES = [(60, 20), (80, 24), (120, 35), (200, 50)]
TRAINING = 180.0
STOPPED = Finished(started_at=1.0, ended_at=2.0, outcome="stopped", exit_code=0, signal=None, reason="asked")


def checkpoint(step: int) -> CheckpointSaved:
    return CheckpointSaved(step=step, path=f"/checkpoints/step-{step:08d}", bytes=75 << 20)


def measured(step: int, length: float) -> DrafterMeasured:
    return DrafterMeasured(step=step, acceptance_length=length, accuracy=[0.5], tokens=900, best=False)


def logged(step: int) -> StepLogged:
    return StepLogged(
        step=step,
        total_steps=400,
        loss=9.0 - step / 100,
        accuracy=[step / 1000],
        learning_rate=1e-3,
        gradient_norm=0.5,
        tokens_per_s=100.0,
        input_wait_fraction=0.0,
    )


async def begin_another(screen, *, state=STOPPED, **settings) -> str:
    """A newer training of two parts, with checkpoints at 100, 200 and 300 of which the first was removed and the second is the best."""
    host = screen.app.feed.state
    old = next(job for job in host.jobs.values() if job.agent == "training")
    told = msgspec.structs.replace(TRAINING_SPEC.training, checkpoints_kept=1, **settings)
    spec = msgspec.structs.replace(TRAINING_SPEC, training=told)
    parts = {
        "training-first": [
            logged(100),
            checkpoint(100),
            measured(100, 1.4),
            TrainingPhase(phase="step"),
            logged(200),
            checkpoint(200),
            measured(200, 1.71),
            TrainingPhase(phase="step"),
            logged(290),
        ],
        "training-second": [
            logged(210),
            logged(300),
            checkpoint(300),
            measured(300, 1.62),
            TrainingPhase(phase="step"),
        ],
    }
    for at, (name, events) in enumerate(parts.items()):
        began = old.created_at + 1000.0 * (at + 1)
        job = msgspec.structs.replace(old, job_id=name, spec=spec, state=state, run_id=None, created_at=began)
        await screen.send(JobChanged(job=job))
        for seq, event in enumerate(events, 1):
            await screen.send(
                ProgressMade(job_id=name, record=ProgressRecord(seq=seq, at=began + 10.0 * seq, event=event))
            )
    await screen.until(
        lambda: "training-second" in host.curves and host.curves["training-second"].pruned_at is not None
    )
    return old.job_id


def row(screen, text: str) -> str:
    return next(line for line in screen.lines if line.lstrip().startswith(text))


@pytest.mark.parametrize("size", SIZES)
async def test_it_says_how_a_training_stands_at_every_size(embedded_run, show, size) -> None:
    async with show(embedded_run, until=TRAINING, size=size) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press("4")
        await screen.until_shown("▶ running", "training loss")
        if size[0] >= 80:
            await screen.until_shown("step 225 of 400 (56")
            await screen.until_shown("step 200" if size[1] >= 35 else "last checkpoint at step 200, 2 of 2 kept")


async def test_checkpoints_say_which_is_best_on_validation_text_and_which_are_kept(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(200, 50)) as screen:
        await screen.until_shown("● connected")
        await begin_another(screen)
        await screen.pilot.press("4")
        await screen.until_shown(
            "training-second", "◼ stopped", "can go on from the checkpoint of step 300", "validation text"
        )
        assert "1.62 accepted" in row(screen, "step 300 ")
        assert row(screen, "step 300 ").rstrip().endswith("last, kept")
        assert "★ best, kept" in row(screen, "step 200 ")
        assert "removed" in row(screen, "step 100 ")
        await screen.until_shown("learning rate", "gradient norm")


async def test_another_training_is_drawn_over_it_by_steps(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(200, 50)) as screen:
        await screen.until_shown("● connected")
        old = await begin_another(screen)
        await screen.pilot.press("4")
        await screen.until_shown("training-second")
        await screen.pilot.press("m")
        await screen.until_shown("A training to compare with", f"{old} running")
        await screen.pilot.press("down", "enter")
        await screen.until_shown(f"other {old}", "other loss", "what they were set to is not known")
        await screen.pilot.press("m")
        await screen.until(lambda: "other loss" not in screen.text)
        await screen.pilot.press("n")
        await screen.until_shown(f"{old} running", "training-second stopped")
        await screen.pilot.press(*"embedded")
        await screen.until(lambda: "training-second stopped" not in screen.text)
        await screen.pilot.press("down", "enter")
        await screen.until_shown("step 225 of 400 (56")


async def test_going_on_shows_what_it_means_first(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("● connected")
        await screen.pilot.press("4", "u")
        await screen.until(lambda: any("has not ended" in each.message for each in screen.app._notifications))
        await begin_another(screen)
        await screen.until_shown("training-second")
        await screen.pilot.press("u")
        await screen.until_shown(
            "Go on with a training?",
            "the checkpoint of step 300",
            "step 400",
            "$ roost training resume training-second",
        )
        await screen.pilot.press("enter")
        await screen.until(lambda: not isinstance(screen.app.screen, Confirm))
        assert screen.session.resumed == []
        await screen.pilot.press("u")
        await screen.until_shown("Go on with a training?")
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.resumed)
        assert screen.session.resumed == ["training-second"]


async def test_an_export_shows_which_checkpoint_goes_where_first(embedded_run, show) -> None:
    async with show(embedded_run, until=TRAINING, size=(120, 35)) as screen:
        await screen.until_shown("● connected")
        await begin_another(screen)
        await screen.pilot.press("4")
        await screen.until_shown("training-second")
        await screen.pilot.press("e")
        await screen.until_shown("There are 300, 200")
        assert screen.app.screen.query_one("#answer").value == "200"
        await screen.pilot.press("enter")
        await screen.until_shown("Where to?")
        await screen.pilot.press("enter")
        await screen.until_shown(
            "Export a drafter?",
            "step 200, the best: 1.71 tokens accepted on validation text",
            "exports/step-200",
            "--step 200",
        )
        await screen.pilot.press("y")
        await screen.until(lambda: screen.session.exported)
        assert screen.session.exported == [("training-second", "exports/step-200", 200)]
