"""`roost demo`."""

from typing import Annotated

import typer

from console import operations, operations_demo
from console.cli.options import Json
from console.cli.output import execute, print_document, print_text, require_terminal
from console.documents import DemoHost

LIST = "list"


def demo(
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="NAME", help="Play devices as NAME has them; 'list' describes all.")
    ] = "",
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Open the screen on the embedded host, or on one whose GPUs a stand-in for the NVIDIA driver plays.

    Such a host is named demo-NAME: `roost telemetry --host demo-one_xid` works as well. What is played is marked SIMULATED.
    With --json the host is only started and named.
    """
    if scenario == LIST:
        _print_scenarios(as_json=as_json)
        return
    host, name = operations.EMBEDDED, scenario.replace("-", "_")
    if name:
        host = execute(operations_demo.start_demo(name), as_json=as_json).name
    if as_json:
        print_document("demo", DemoHost(host=host, scenario=name or None))
        return
    require_terminal()
    from console.ui.start import run_screen  # noqa: PLC0415 - Textual loads only for the screen

    raise typer.Exit(run_screen(host))


def _print_scenarios(*, as_json: bool) -> None:
    found = operations_demo.list_scenarios()
    if as_json:
        print_document("scenarios", found)
    else:
        width = max(map(len, found))
        print_text("\n".join(f"{name.ljust(width)}  {description}" for name, description in found.items()))
