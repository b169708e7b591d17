"""The verdict and the help, laid out for a dialog."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from console.config.hosts import RESERVED
from console.state.sanitize import sanitize
from console.state.units import format_percent
from console.state.verdicts import CAUSES, causes_to_show, interval, load, outputs, positions, suspicion
from console.ui.keymap import (
    LOG_ACTIONS,
    OVERVIEW_ACTIONS,
    PLOT_ACTIONS,
    STORAGE_ACTIONS,
    TRAINING_ACTIONS,
    VOCABULARY_ACTIONS,
    Action,
    key_name,
    rebound,
)
from console.ui.words import VERDICT_GLYPHS, run_name_of
from remote.protocol.reports import VerdictReport

_MEANINGS = (
    ("Top line", "the host, the link's round trip, the age of the last reading, the newest run, alerts"),
    ("Stages", "of the newest run: ✓ done or kept from before, ▶ running, ✗ failed, · to come"),
    ("Devices", "GPUs; on a host without any, processor cores, and it says so"),
    ("Disk", "what is used, how fast it fills, when it will be full at that rate, what the run still writes"),
    ("Health", "of a device: ok, or what is wrong with it; g shows everything that is known"),
    ("Engine", "tokens per second read (prefill) and written (decode) by the inference server"),
    ("Jobs", "newest run first, what it started below it; Enter opens a log"),
    ("Acceptance", "tokens per verification, the bonus token included; 1.0 means that the drafter is useless"),
    ("Alerts", "the bottom line, the gravest first; d, or Enter on it, shows since when and what to do"),
    ("Log", "follows its end until you scroll up; f follows again; E, W and D before a line: error, warning, debug"),
)


def verdict_text(verdict: VerdictReport, job_id: str, host: str) -> RenderableType:
    """Decision, both rates at each load, acceptance, outputs, reasons, what to look at and how to send it to somebody."""
    low, high = verdict.speedup_interval
    decision = Text(f"{VERDICT_GLYPHS[verdict.decision]} {verdict.decision}\n", style="bold")
    accepted = f"{verdict.acceptance_length:.2f} tokens a verification, the bonus token included"
    rows = [
        ("without the drafter", f"{verdict.baseline_tokens_per_s:.2f} tok/s"),
        ("with the drafter", f"{verdict.drafter_tokens_per_s:.2f} tok/s"),
        ("speed-up", f"{verdict.speedup:.2f}x (95% interval {low:.2f}x to {high:.2f}x)"),
        *(
            (
                load(level.concurrency),
                (
                    f"{VERDICT_GLYPHS[level.decision]} {interval(level)}, in all {level.baseline_output_tokens_per_s:.1f} tok/s "
                    f"without, {level.drafter_output_tokens_per_s:.1f} with it"
                ),
            )
            for level in verdict.levels[1:]
        ),
        ("acceptance length", accepted),
    ]
    if verdict.position_acceptance:
        rows.append(("proposals accepted", f"{positions(verdict)} of the first, the second, …"))
    if verdict.categories:
        rows.append(
            ("by category", ", ".join(f"{one.category} {one.acceptance_length:.2f}" for one in verdict.categories))
        )
    rows += [
        ("coverage", f"{format_percent(verdict.coverage)} of the answers' tokens are in the draft vocabulary"),
        ("greedy outputs", outputs(verdict)),
        ("measured with", f"{verdict.engine}, {verdict.dtype}, {verdict.prompts} prompts"),
    ]
    parts: list[RenderableType] = [decision, two_columns(rows)]
    causes = [f"{CAUSES[one.cause]} ({suspicion(one)}): {one.text}" for one in causes_to_show(verdict)]
    for heading, sentences in (
        ("Because", verdict.reasons),
        ("What to look at, in this order", causes),
        ("What to do", verdict.advice),
    ):
        if sentences:
            parts += [Text(f"\n{heading}", style="bold"), two_columns([("-", sentence) for sentence in sentences])]
    on_host = "" if host == RESERVED else f" --host {host}"
    drafter = f"runs/{run_name_of(job_id)}/drafter"
    where = f"{drafter}, below the host's root"
    if verdict.provenance is not None:
        where = verdict.provenance.drafter
        drafter = drafter if where.endswith(f"/{drafter}") else where
    commands = [
        ("the drafter is", where),
        ("bring it here", f"roost pull {drafter} ./drafter{on_host}"),
        ("a page to send", f"roost verdict {job_id} --output DIR{on_host}"),
    ]
    parts += [Text("\nWhat next", style="bold"), two_columns(commands)]
    return Group(*parts)


def help_text(actions: tuple[Action, ...], own_keys: dict[str, str]) -> RenderableType:
    """Keys, of which a person may have own ones by the ids of their actions, and the meaning of what is on the screen."""
    keys = [(key_name(action), action.help) for action in actions]
    on_a_log = [(key_name(action), action.help) for action in rebound(LOG_ACTIONS, own_keys)]
    return Group(
        two_columns([*keys, ("Ctrl+P", "All of these in a palette that can be searched")]),
        Text("\nOn the overview", style="bold"),
        two_columns([(key_name(action), action.help) for action in rebound(OVERVIEW_ACTIONS, own_keys)]),
        Text("\nOn a log that has the whole screen or its page", style="bold"),
        two_columns(on_a_log),
        Text("\nOn plots; a pointer over them reads, its wheel zooms, a click enlarges", style="bold"),
        two_columns([(key_name(action), action.help) for action in rebound(PLOT_ACTIONS, own_keys)]),
        Text("\nOn the page of the trainings", style="bold"),
        two_columns([(key_name(action), action.help) for action in rebound(TRAINING_ACTIONS, own_keys)]),
        Text("\nOn the page of the mappings", style="bold"),
        two_columns([(key_name(action), action.help) for action in rebound(VOCABULARY_ACTIONS, own_keys)]),
        Text("\nOn the page of the disks", style="bold"),
        two_columns([(key_name(action), action.help) for action in rebound(STORAGE_ACTIONS, own_keys)]),
        Text(),
        two_columns(_MEANINGS),
        Text("\nJobs run on the host under supervisors of their own. Closing this screen stops nothing."),
    )


def two_columns(rows: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Table:
    """Rows with a bold first column; what is too long goes on below itself. Texts are made harmless."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for first, second in rows:
        table.add_row(Text(sanitize(first)), Text(sanitize(second)))
    return table
