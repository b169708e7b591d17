"""Dialogs: what will be done before it is done, and answers that need room."""

import shlex

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.markup import escape
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from console.config.hosts import RESERVED
from console.state.cost import Cost, cost_words
from console.state.sanitize import one_line, sanitize
from console.state.units import format_bytes, format_duration
from remote.protocol.errors import ErrorInfo
from remote.protocol.jobs import Job
from remote.protocol.reports import RunPlan


class Notice(ModalScreen[None]):
    """Something to read; any of Escape, Enter and the button closes it."""

    BINDINGS = [Binding("escape,enter", "dismiss", "Close")]

    def __init__(self, title: str, body: RenderableType) -> None:
        super().__init__()
        self._title = title
        self._body = body

    def compose(self) -> ComposeResult:
        """Title, text, button."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = escape(self._title)
            with VerticalScroll():
                yield Static(self._body)
            with Horizontal(classes="buttons"):
                yield Button("Close", id="close", variant="primary", compact=True)

    def on_mount(self) -> None:
        """The arrow keys scroll; Enter and Escape close wherever the focus is."""
        self.query_one(VerticalScroll).focus()

    def on_button_pressed(self) -> None:
        """The only button."""
        self.dismiss()


class Confirm(ModalScreen[bool]):
    """A question with the exact thing that will happen; No has the focus."""

    BINDINGS = [Binding("escape,n", "answer(False)", "No"), Binding("y", "answer(True)", "Yes")]

    def __init__(self, title: str, body: RenderableType, *, yes: str) -> None:
        super().__init__()
        self._title = title
        self._body = body
        self._yes = yes

    def compose(self) -> ComposeResult:
        """Text and two buttons."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = escape(self._title)
            with VerticalScroll():
                yield Static(self._body)
            with Horizontal(classes="buttons"):
                yield Button("No (n)", id="no", compact=True)
                yield Button(f"{self._yes} (y)", id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        """The safe answer is under Enter."""
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Either button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - Textual passes it from the binding
        """The keys."""
        self.dismiss(answer)


class ConfirmByName(ModalScreen[bool]):
    """A question whose yes cannot be taken back: only the host's name, typed, is one."""

    BINDINGS = [Binding("escape", "dismiss(False)", "No")]

    def __init__(self, title: str, body: RenderableType, name: str, *, then: str) -> None:
        super().__init__()
        self._title = title
        self._body = body
        self._name = name
        self._then = then

    def compose(self) -> ComposeResult:
        """Text and a line to type on."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = escape(self._title)
            with VerticalScroll():
                yield Static(self._body)
            yield Static(f"\nType {self._name} and Enter to {self._then}. Escape does nothing.", markup=False)
            yield Input(id="answer")

    def on_mount(self) -> None:
        """Type at once."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter; another word is told and does nothing."""
        if event.value.strip() == self._name:
            self.dismiss(result=True)
        else:
            self.notify(f"That is not {self._name}: nothing was done.", severity="warning", markup=False)


class AskLine(ModalScreen[str | None]):
    """A question with a line for the answer; `then` says what Enter leads to. Nothing typed is no answer."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, title: str, question: str, suggestion: str, *, then: str) -> None:
        super().__init__()
        self._title = title
        self._question = question
        self._suggestion = suggestion
        self._then = then

    def compose(self) -> ComposeResult:
        """A line to type on."""
        with Vertical(classes="dialog -small") as dialog:
            dialog.border_title = escape(self._title)
            yield Static(self._question, markup=False)
            yield Input(self._suggestion, id="answer")
            yield Static(f"{self._then} Escape cancels.", markup=False, classes="quiet")
            yield from _answer_buttons()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value.strip() or None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The same with the mouse."""
        self.dismiss(self.query_one(Input).value.strip() or None if event.button.id == "take" else None)


class AskPassphrase(ModalScreen[str | None]):
    """The passphrase of an encrypted key; it is kept in memory until the screen closes."""

    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """A line to type on, unseen."""
        with Vertical(classes="dialog -small") as dialog:
            dialog.border_title = "Encrypted key"
            yield Static(self._question, markup=False)
            yield Input(password=True, id="passphrase")
            yield Static("Kept in memory until Roost closes. Escape cancels.", markup=False, classes="quiet")
            yield from _answer_buttons()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value or None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The same with the mouse."""
        self.dismiss(self.query_one(Input).value or None if event.button.id == "take" else None)


def _answer_buttons() -> ComposeResult:
    with Horizontal(classes="buttons"):
        yield Button("Cancel (Esc)", id="cancel", compact=True)
        yield Button("OK (Enter)", id="take", variant="primary", compact=True)


class PlanDialog(ModalScreen[bool]):
    """The plan of a run; Enter starts it unless it has problems."""

    BINDINGS = [Binding("escape", "answer(False)", "Cancel"), Binding("enter", "answer(True)", "Start")]

    def __init__(self, plan: RunPlan, host: str, cost: Cost | None) -> None:
        super().__init__()
        self._cost = cost
        self._plan = plan
        self._host = host

    def compose(self) -> ComposeResult:
        """Stages, bytes, problems."""
        plan = self._plan
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = escape(one_line(f"Run {plan.run.name} on {self._host}"))
            with VerticalScroll():
                yield Static(plan_text(plan, self._cost))
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Start (Enter)", id="start", variant="primary", disabled=bool(plan.problems), compact=True)

    def on_mount(self) -> None:
        """Enter means the enabled choice."""
        self.query_one("#cancel" if self._plan.problems else "#start").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Either button."""
        self.dismiss(event.button.id == "start")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 - Textual passes it from the binding
        """The keys."""
        self.dismiss(answer and not self._plan.problems)


def error_text(info: ErrorInfo) -> Text:
    """What happened, and what to do next."""
    body = Text(sanitize(info.message))
    if info.hint:
        body.append(f"\n\n{sanitize(info.hint)}")
    if info.next_command:
        body.append(f"\n\n$ {one_line(info.next_command)}", style="bold")
    return body


def command_line(host: str, *words: str) -> str:
    """What does the same without the screen."""
    return shlex.join(["roost", *words, *(() if host == RESERVED else ("--host", host))])


def intent_body(host: str, rows: list[tuple[str, str]], command: str) -> RenderableType:
    """What will happen, where, and the command that does the same."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, words in (("host", host), *rows):
        grid.add_row(Text(label), Text(sanitize(words)))
    return Group(grid, Text(f"\n$ {one_line(command)}"))


def stop_question(job: Job, children: list[Job], host: str) -> Text:
    """What stopping a job means: which one, where, and what goes with it."""
    text = Text("Stop ")
    text.append(f"{one_line(job.agent)} {job.job_id}", style="bold")
    text.append(" on ")
    text.append(host, style="bold")
    text.append("?")
    if job.run_id is not None:
        text.append(f"\n\nIt works for {one_line(job.run_id)}.")
    if children:
        text.append("\n\nIts jobs stop with it: " + ", ".join(one_line(child.agent) for child in children) + ".")
    text.append(
        "\n\nIt is asked to end, and killed when it does not end in time. What is finished stays; the same run "
    )
    text.append("started again goes on from there.")
    return text.append(f"\n\n$ {one_line(command_line(host, 'stop', job.job_id))}")


def host_key_question(unknown: ErrorInfo) -> Text:
    """What accepting a host's key means."""
    text = Text(f"{unknown.message}\n\n")
    text.append(
        "Trust it only if this is the fingerprint that the provider or the host's own console shows", style="bold"
    )
    return text.append(": whoever answers with this key sees everything that is sent, tokens included.")


def plan_text(plan: RunPlan, cost: Cost | None) -> RenderableType:
    """The plan for people: where, how much, each stage, and what stands in the way."""
    stages = Table.grid(padding=(0, 2))
    stages.add_column(style="bold", no_wrap=True)
    stages.add_column(no_wrap=True)
    stages.add_column()
    for stage in plan.stages:
        costs = [format_bytes(stage.bytes_needed)] if stage.bytes_needed else []
        costs += [f"about {format_duration(stage.seconds)}"] if (stage.seconds or 0) >= 1 else []
        need = f" ({', '.join(costs)})" if costs else ""
        stages.add_row(Text(stage.action), Text(stage.stage), Text(sanitize(f"{stage.reason}{need}")))
    room = f"needs {format_bytes(plan.bytes_needed)} on disk, {format_bytes(plan.bytes_free)} are free\n"
    if plan.seconds is not None:
        room += f"takes about {format_duration(max(1.0, plan.seconds))}, as earlier runs did on this host\n"
    if cost is not None:
        room += f"costs {cost_words(cost)}\n"
    parts: list[RenderableType] = [Text(sanitize(plan.directory)), Text(room), stages]
    parts += [Text(sanitize(f"\n✗ {problem}"), style="bold") for problem in plan.problems]
    return Group(*parts)
