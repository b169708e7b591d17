"""`roost hosts`."""

from typing import Annotated

import typer

from console import operations
from console.cli.options import Json
from console.cli.output import execute, print_document, print_text
from console.config.hosts import HostConfig

app = typer.Typer(help="The hosts of roost.toml.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_all(as_json: Json = False) -> None:  # noqa: FBT002
    """List the configured hosts; the embedded host is always there."""

    async def work() -> dict[str, HostConfig]:
        return operations.list_hosts()

    hosts = execute(work(), as_json=as_json)
    if as_json:
        print_document("hosts", [operations.EMBEDDED, *hosts])
        return
    print_text(f"{operations.EMBEDDED:<16} this machine, over loopback SSH")
    for host in hosts.values():
        print_text(f"{host.name:<16} {host.user or ''}{'@' if host.user else ''}{host.address}")


@app.command()
def trust(
    name: Annotated[str, typer.Argument(metavar="HOST", help="The host, as roost.toml names it.")],
    fingerprint: Annotated[
        str, typer.Option("--fingerprint", help="SHA256:… as the provider or the host's console shows it.")
    ],
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Accept a host's key after comparing its fingerprint."""
    execute(operations.trust_host(name, fingerprint), as_json=as_json)
    if as_json:
        print_document("trusted", {"host": name, "fingerprint": fingerprint})
    else:
        print_text(f"the key {fingerprint} of {name} is trusted from now on")
