"""Options that several verbs share."""

from typing import Annotated

import typer

Host = Annotated[str, typer.Option("--host", "-H", help="The host, as roost.toml names it, or 'embedded'.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout (NDJSON for streams).")]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the run file, such as training.steps=20."),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", help="Give up waiting after this many seconds (exit code 4).")
]

ACTOR = "cli"
"""Who the host's journal says asked for it."""
