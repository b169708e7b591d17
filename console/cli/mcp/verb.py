"""The verb that starts the server; the SDK is loaded only then."""

from typing import Annotated

import typer

from console import operations
from console.cli.output import execute, narrate
from console.config.policy import Policy


def mcp(
    policy: Annotated[
        Policy,
        typer.Option("--policy", help="The most that is allowed on any host: read-only, operate or full."),
    ] = "full",
) -> None:
    """Serve AI agents on standard input and output (Model Context Protocol): the operations as tools, logs and verdicts as resources.

    What they may do on a host its `agents` in roost.toml says: read-only, operate (unless said) or full.
    """
    from console.cli.mcp.server import serve  # noqa: PLC0415 - the SDK takes a second to load

    operations.report_beginnings_with(narrate)
    execute(serve(policy), as_json=False)
