"""`roost hosts`."""

from typing import Annotated

import msgspec
import typer

from console import operations, operations_hosts
from console.cli.host_text import host_check_lines
from console.cli.manners import agreed
from console.cli.options import Json
from console.cli.output import EXIT_CODES, execute, narrate, print_document, print_text
from console.cli.verbs import Verbs
from console.config.hosts import HostConfig
from console.documents import CheckedHost, TrustedKey
from console.errors import ConfirmationNeeded
from console.operations_hosts import EnvironmentPlan
from remote.protocol.errors import ErrorCode

app = Verbs(help="The hosts of roost.toml.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list", short_help="List the configured hosts.")
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


@app.command("check", short_help="Look at a host without changing it.")
def check_host(
    name: Annotated[str, typer.Argument(metavar="HOST", help="The host, as roost.toml names it, or 'embedded'.")],
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Look at a host without changing it: login, every Python and what it lacks, the disk, the machine."""
    found = execute(operations_hosts.check_host(name), as_json=as_json)
    if as_json:
        print_document("check", CheckedHost(**msgspec.structs.asdict(found), usable=found.usable))
    else:
        print_text("\n".join(host_check_lines(found)))
    raise typer.Exit(0 if found.usable else EXIT_CODES[ErrorCode.PRECONDITION])


@app.command(short_help="Make a Python environment for Roost on a host.")
def prepare(
    name: Annotated[str, typer.Argument(metavar="HOST", help="The host, as roost.toml names it.")],
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="HOST", help="Repeat the host's name to do it unasked.")
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Make a Python environment of Roost's own on a host, below its root; shows the commands first."""

    async def work() -> EnvironmentPlan | None:
        plan = await operations_hosts.plan_environment(name)
        if plan is None:
            return None
        for command in plan.commands():
            narrate(f"  {command}")
        if confirm != name and not agreed(f"Do this on {name}?"):
            raise ConfirmationNeeded(
                f"preparing {name} needs a confirmation", next_command=f"roost hosts prepare {name} --confirm {name}"
            )
        await operations_hosts.prepare_host(plan, narrate)
        return plan

    plan = execute(work(), as_json=as_json)
    if as_json:
        print_document("environment", plan)
    elif plan is None:
        print_text(f"{name} has a Python with all that Roost needs; nothing was changed")
    else:
        print_text(f"{plan.environment} is ready")


@app.command(short_help="Accept a host's key by its fingerprint.")
def trust(
    name: Annotated[str, typer.Argument(metavar="HOST", help="The host, as roost.toml names it.")],
    fingerprint: Annotated[
        str, typer.Option("--fingerprint", help="SHA256:… as the provider or the host's console shows it.")
    ],
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Accept the key of a host, or of the first unknown one on the way to it, after comparing its fingerprint."""
    whose = execute(operations_hosts.trust_host(name, fingerprint), as_json=as_json)
    if as_json:
        print_document("trusted", TrustedKey(host=name, key_of=whose, fingerprint=fingerprint))
    else:
        print_text(f"the key {fingerprint} of {whose} is trusted from now on")
