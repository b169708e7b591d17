"""`roost embedded`."""

import typer

from console import operations
from console.cli.options import Json
from console.cli.output import execute, narrate, print_document, print_text

app = typer.Typer(
    help="The embedded host: this machine behind a loopback SSH server, with a real engine on the CPU.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def prepare(as_json: Json = False) -> None:  # noqa: FBT002
    """Install the engine's environment (about 4 GB), the sample model and the conversations; does nothing when they are there."""

    async def work() -> None:
        operations.prepare_embedded(narrate)

    execute(work(), as_json=as_json)
    if as_json:
        print_document("embedded", {"prepared": True})
    else:
        print_text("the embedded host is ready")


@app.command()
def stop(as_json: Json = False) -> None:  # noqa: FBT002
    """Stop the embedded host's SSH server; its jobs go on."""
    stopped = execute(operations.stop_embedded(), as_json=as_json)
    if as_json:
        print_document("embedded", {"stopped": stopped})
    else:
        print_text("stopped; its jobs go on" if stopped else "it was not running")
