"""Loss, accuracy and rates of a training, its checkpoints, and another training to compare it with."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from textual.app import ComposeResult
from textual.binding import ActiveBinding

from console.config.hosts import price_of
from console.state.cost import cost_of, cost_words
from console.state.sanitize import one_line
from console.state.training_plots import training_plots
from console.state.trainings import (
    Checkpoint,
    ShownTraining,
    checkpoints_of,
    standing_words,
    trainings_of,
    why_not_resumed,
)
from console.state.units import UNKNOWN, format_bytes, format_duration
from console.ui.keymap import TRAINING_ACTIONS, bindings
from console.ui.pages.page import Page
from console.ui.screens.dialogs import AskLine, Confirm, command_line, intent_body
from console.ui.views.training import training_lines
from console.ui.widgets.glance import Glance
from console.ui.widgets.lines import Lines
from console.ui.widgets.plots import Plots
from console.ui.words import job_mark

_OWN = {action.action for action in TRAINING_ACTIONS}
_FOOTER_FOR_ALL = 112
"""Columns from which on its keys and those of the plots have room beside each other."""
_FEWEST_ROWS, _LOW, _SHARE = 2, 24, 5
"""Lines that say how the training stands at least, and one more for so many rows that the terminal has beyond the low ones."""


class TrainingPage(Page):
    """The curves of the chosen training, the newest at first, also of one that is over, and of the host under it."""

    NAME = "training"
    BINDINGS = bindings(TRAINING_ACTIONS)
    APP_KEYS = frozenset({"help_panel", "leave"})

    def __init__(self) -> None:
        super().__init__()
        self._chosen: str | None = None
        self._other: str | None = None
        self._trainings: list[ShownTraining] = []

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Where the footer has no room for all, those of the plots are in it."""
        found = super().active_bindings
        if self.size.width >= _FOOTER_FOR_ALL:
            return found
        return {
            key: each._replace(binding=replace(each.binding, show=False)) if each.binding.action in _OWN else each
            for key, each in found.items()
        }

    def content(self) -> ComposeResult:
        """How it stands, and the curves."""
        yield Lines(id="training-lines", markup=False)
        yield Plots(id="page-plots")

    def on_mount(self) -> None:
        """The arrow keys read and zoom."""
        self.query_one(Plots).focus()

    def show_content(self, glance: Glance) -> None:
        """Draw them; the progress of all jobs of both trainings is asked of the host."""
        state = glance.state
        self._trainings = trainings_of(state)
        shown, other = self._shown(), self._compared()
        state.looked_at = frozenset(job.job_id for each in (shown, other) if each is not None for job in each.jobs)
        lines = self.query_one("#training-lines", Lines)
        lines.display = shown is not None
        if shown is not None:
            rows = _FEWEST_ROWS + max(0, self.size.height - _LOW) // _SHARE + 2 * (other is not None)
            width = lines.content_size.width or self.size.width - 2
            lines.put(
                training_lines(shown, other, host_now=glance.host_now, palette=glance.palette, width=width, rows=rows)
            )
        curves = None if shown is None else shown.curves
        plots = training_plots(state, curves, None if other is None else other.curves)
        self.query_one(Plots).show(plots, state.readings.marks.all, glance.palette)

    def action_choose_training(self) -> None:
        """Another training."""
        if len(self._trainings) <= 1:
            self._say("There is no other training on this host.")
        else:
            self._offer(self._trainings, "A training", self._choose)

    def action_compare_training(self) -> None:
        """Another one's curves over these, or none."""
        shown = self._shown()
        others = [each for each in self._trainings if shown is None or each.job.job_id != shown.job.job_id]
        if self._other is not None:
            self._compare_with(None)
        elif not others:
            self._say("There is no other training on this host to compare with.")
        else:
            self._offer(others, "A training to compare with", self._compare_with)

    def action_resume_training(self) -> None:
        """Go on with it."""
        self.run_operation(self._resume())

    def action_export_drafter(self) -> None:
        """Write a checkpoint's drafter."""
        self.run_operation(self._export())

    def _shown(self) -> ShownTraining | None:
        return self._named(self._chosen) or (self._trainings[0] if self._trainings else None)

    def _compared(self) -> ShownTraining | None:
        other, shown = self._named(self._other), self._shown()
        return None if other is None or shown is None or other.job.job_id == shown.job.job_id else other

    def _named(self, job_id: str | None) -> ShownTraining | None:
        """By any of its jobs: another one may go on with it while it is looked at."""
        return next((each for each in self._trainings if any(job.job_id == job_id for job in each.jobs)), None)

    def _offer(self, trainings: list[ShownTraining], question: str, take: Callable[[str], None]) -> None:
        found = [
            (
                f"{one_line(each.job.job_id)} {job_mark(each.job.state).word}",
                partial(take, each.job.job_id),
                standing_words(each),
            )
            for each in trainings
        ]
        self.app.search_commands(found, placeholder=question)

    def _choose(self, job_id: str) -> None:
        self._chosen = job_id

    def _compare_with(self, job_id: str | None) -> None:
        self._other = job_id
        self.query_one(Plots).look_along("time" if job_id is None else "step")

    def _say(self, words: str) -> None:
        self.notify(words, markup=False)

    async def _resume(self) -> None:
        """On the devices that it had; the plan is what its jobs told."""
        shown = self._shown()
        if shown is None or self.session is None:
            self._say("There is no training to go on with.")
            return
        reason = why_not_resumed(shown)
        if reason is not None:
            self._say(reason)
            return
        job_id = shown.job.job_id
        body = intent_body(
            self.host_name,
            _resumption(shown, self.host_name),
            command_line(self.host_name, "training", "resume", job_id),
        )
        if await self.app.push_screen_wait(Confirm("Go on with a training?", body, yes="Go on")):
            job = await self.session.resume_training(job_id)
            self._chosen = job.job_id
            self._say(f"Started {job.job_id} on {self.host_name}. It goes on without this screen.")

    async def _export(self) -> None:
        """The best checkpoint, or the one of a step."""
        shown = self._shown()
        saved = [] if shown is None else [each for each in checkpoints_of(shown) if each.is_kept is not False]
        if shown is None or self.session is None or not saved:
            self._say("There is no checkpoint to export yet.")
            return
        best = next((each for each in saved if each.is_best), saved[0])
        steps = ", ".join(str(each.step) for each in saved)
        step = await self.app.push_screen_wait(
            AskLine(
                "Export a drafter",
                f"The checkpoint of which step? There are {steps}:",
                str(best.step),
                then="Enter asks where to.",
            )
        )
        chosen = next((each for each in saved if str(each.step) == step), None)
        if step is None or chosen is None:
            if step is not None:
                self._say(f"There is no checkpoint of step {step}; there are {steps}.")
            return
        question = "Where to? A directory on the host that is not there yet, absolute or below its root:"
        directory = await self.app.push_screen_wait(
            AskLine("Export a drafter", question, f"exports/step-{chosen.step}", then="Enter shows what will be done.")
        )
        if directory is None:
            return
        job_id = shown.job.job_id
        words = command_line(self.host_name, "training", "export", job_id, directory, "--step", str(chosen.step))
        if await self.app.push_screen_wait(
            Confirm(
                "Export a drafter?",
                intent_body(self.host_name, _exportation(shown, chosen, directory), words),
                yes="Export it",
            )
        ):
            job = await self.session.export_drafter(job_id, directory, step=chosen.step)
            self._say(f"Started {job.job_id} on {self.host_name}.")


def _resumption(shown: ShownTraining, host: str) -> list[tuple[str, str]]:
    """What going on means, row by row."""
    spec, last = shown.spec, shown.curves.last
    saved = [each for each in checkpoints_of(shown) if each.is_kept is not False]
    seconds = _seconds_left(shown, saved[0].step if saved else 0)
    rows = [
        ("training", shown.job.job_id),
        ("from", f"the checkpoint of step {saved[0].step:,}, or the newest one that is sound" if saved else "step 0"),
        ("to", UNKNOWN if last is None else f"step {last.total_steps:,}"),
        ("takes", UNKNOWN if seconds is None else f"about {format_duration(seconds)}, as its steps did"),
    ]
    if spec is not None:
        rows += [
            ("on", f"{spec.training.ranks} of {spec.training.device}"),
            ("writes", f"checkpoints to {spec.checkpoints}, the drafter to {spec.drafter}"),
        ]
    if saved:
        rows.append(("disk", f"{format_bytes(saved[0].bytes)} a checkpoint"))
    cost = cost_of(price_of(host), seconds)
    return [*rows, ("costs", cost_words(cost))] if cost is not None else rows


def _seconds_left(shown: ShownTraining, start: int) -> float | None:
    """By the time that its logged steps took."""
    steps = shown.curves.steps
    if len(steps) < 2 or steps[-1].step.step <= steps[0].step.step:
        return None
    spent = steps[-1].at - steps[0].at
    each = spent / (steps[-1].step.step - steps[0].step.step)
    return max(0.0, each * (steps[-1].step.total_steps - start))


def _exportation(shown: ShownTraining, chosen: Checkpoint, directory: str) -> list[tuple[str, str]]:
    """What an export means, row by row."""
    measured = "not measured on validation text"
    if chosen.measured is not None:
        measured = f"{chosen.measured.acceptance_length:.2f} tokens accepted on validation text"
    return [
        ("training", shown.job.job_id),
        ("checkpoint", f"step {chosen.step:,}{', the best' if chosen.is_best else ''}: {measured}"),
        ("writes", f"the drafter as SGLang and vLLM read it to {directory}"),
        ("disk", f"at most {format_bytes(chosen.bytes)}"),
    ]
