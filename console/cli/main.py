"""The `roost` command."""

import sys
from typing import Annotated

import typer

from console import operations
from console.cli import (
    allocation,
    approvals,
    browser,
    bulk,
    demo,
    embedded,
    extraction,
    hosts,
    jobs,
    journal,
    notifications,
    record,
    run,
    secrets,
    server,
    storage,
    telemetry,
    training,
    verdict,
    vocabulary,
)
from console.cli.mcp.verb import mcp
from console.cli.options import Host, is_host_given, takes_a_host
from console.cli.output import has_terminal, is_dumb, narrate, require_terminal
from console.cli.spec import spec
from console.cli.verbs import Root, Verbs

app = Verbs(
    cls=Root,
    name="roost",
    help="Train EAGLE-3 drafters on a GPU host: serve, extract, build the vocabulary, train, measure. "
    "Without a verb it opens the screen.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 connection, 4 timeout, 5 precondition, 6 confirmation needed, 130 interrupted.",
    no_args_is_help=False,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("plan")(run.plan)
app.command("run")(run.run)
app.command("apply", short_help="Start a run exactly as its plan said.")(run.apply)
app.command("verdict", short_help="Show a run's verdict, or write it as a page with plots.")(verdict.verdict)
app.command("status")(jobs.status)
app.command("wait")(jobs.wait)
app.command("stop")(jobs.stop)
app.command("jobs")(jobs.list_all)
app.command("logs", short_help="Print a job's log, by pages or as it grows.")(jobs.logs)
app.command("journal", short_help="Show who changed what, refusals included.")(journal.journal)
app.command("pull", short_help="Bring an artifact to this machine, hashed.")(bulk.pull)
app.command("push", short_help="Bring an artifact to a host, hashed.")(bulk.push)
app.command("telemetry", short_help="Show GPUs, processors, memory, disks, engines.")(telemetry.telemetry)
app.command("demo", short_help="Open the screen on this machine, with played GPUs if wanted.")(demo.demo)
app.command("browser", short_help="Serve the screen to a browser on this machine.")(browser.browser)
app.command("record", short_help="Record a host into a file.")(record.record)
app.command("replay", short_help="Show a recording on the screen, or what is in it.")(record.replay)
app.command("mcp", short_help="Serve AI agents: the operations as MCP tools.")(mcp)
app.command("spec", short_help="Print the contract for programs, with JSON Schemas.")(spec)
app.add_typer(vocabulary.app, name="vocabulary", short_help="Mappings: build, validate, copy, convert.")
app.add_typer(extraction.app, name="extraction", short_help="Stores of hidden states: plan, start, show, verify.")
app.add_typer(training.app, name="training", short_help="Drafters: plan, start, resume, export, compare.")
app.add_typer(hosts.app, name="hosts", short_help="Hosts: list, check, prepare, trust.")
app.add_typer(allocation.app, name="allocation", short_help="Hosts of Slurm: start, show, end an allocation.")
app.add_typer(server.app, name="server", short_help="Inference servers: plan, start, request, bench, tune.")
app.add_typer(secrets.app, name="secrets", short_help="Tokens for jobs: set, list, remove.")
app.add_typer(approvals.app, name="approvals", short_help="The inbox: list, approve, refuse what was asked.")
app.add_typer(notifications.app, name="notifications", short_help="Who is not looking is told: list, try, key.")
app.add_typer(storage.app, name="storage", short_help="Disks: usage, reclaim, restore, purge.")
app.add_typer(embedded.app, name="embedded", short_help="The embedded host: prepare, stop.")


@app.callback(invoke_without_command=True)
def screen(
    context: typer.Context,
    host: Host = operations.EMBEDDED,
    plain: Annotated[  # noqa: FBT002
        bool, typer.Option("--plain", help="Instead of the screen a sentence a line, for screen readers and pipes.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: FBT002
) -> None:
    """Open the screen on a host when no verb is given."""
    if version:
        from importlib.metadata import version as installed_version  # noqa: PLC0415 - only when asked for

        sys.stdout.write(f"roost {installed_version('roost')}\n")
        raise typer.Exit
    name = context.invoked_subcommand
    if name is not None and is_host_given(context) and not takes_a_host(context, name):
        raise typer.BadParameter(f"'{name}' acts on no host that can be named; leave --host out")
    if name is not None and plain:
        raise typer.BadParameter(f"--plain takes the place of the screen; '{name}' prints text anyway")
    if name is None and not plain and is_dumb() and has_terminal():
        narrate("roost: on this terminal (TERM=dumb) nothing can be drawn, so here are sentences, as with --plain")
        plain = True
    if name is None and plain:
        from console.cli.plain import run_plain  # noqa: PLC0415 - it knows the screen's words

        run_plain(host)
    elif name is None:
        require_terminal()
        from console.ui.start import run_screen  # noqa: PLC0415 - Textual loads only for the screen

        raise typer.Exit(run_screen(host if is_host_given(context) else None))


def main() -> None:
    """Entry point of the `roost` command."""
    app(prog_name="roost")
