"""`roost secrets`."""

import getpass
import sys
import time
from typing import Annotated

import typer

from console import operations, operations_secrets
from console.cli.agreement import agreement
from console.cli.manners import may_ask
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.verbs import Verbs
from console.errors import UsageError
from remote.protocol.secrets import Secret, SecretList
from remote.redaction import SECRET_NAME, is_secret_value

app = Verbs(
    help="Tokens for the jobs of a host (HF_TOKEN, WANDB_API_KEY): kept in its memory, given to jobs, covered in what they write.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The variable that jobs read it from; it ends in _TOKEN, _KEY or _SECRET. ROOST_WEBHOOK_URL and _KEY are for `roost notifications`.",
    ),
]


@app.command("set")
def set_value(name: Name, host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """Set a token from standard input.

    Unseen on a terminal; or `roost secrets set HF_TOKEN < file`. Jobs that start from then on find it in their environment.
    """

    async def work() -> SecretList:
        _require_name(name)
        value = _read_value(name)
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_secrets.set_secret(session, name, value)

    _print(execute(work(), as_json=as_json), host, as_json=as_json)


@app.command("list")
def list_all(host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """List the tokens by name, never a value.

    Those that a restart of the host has lost are marked.
    """

    async def work() -> SecretList:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_secrets.list_secrets(session)

    _print(execute(work(), as_json=as_json), host, as_json=as_json)


@app.command()
def remove(
    name: Name,
    host: Host = operations.EMBEDDED,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="Repeat the name to remove it unasked.")
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Remove a token from a host; asks first.

    Jobs that are at work keep what they started with, and what they write of it is covered no more.
    """

    async def work() -> SecretList:
        _require_name(name)
        with agreement(
            f"Remove {name} from {host}?",
            said=confirm,
            expected=name,
            message=f"removing {name} from {host} needs a confirmation",
            again=f"roost secrets remove {name} --host {host} --confirm {name}",
        ):
            async with operations.open_host(host, actor=ACTOR) as session:
                return await operations_secrets.remove_secret(session, name)

    _print(execute(work(), as_json=as_json), host, as_json=as_json)


def _require_name(name: str) -> None:
    if not SECRET_NAME.match(name):
        raise UsageError(
            "what was given is no name for a token",
            hint="capitals, digits and underscores, ending in _TOKEN, _KEY or _SECRET; such as HF_TOKEN or WANDB_API_KEY. "
            "The value comes on standard input, never as an argument",
        )


def _read_value(name: str) -> str:
    if may_ask():
        value = getpass.getpass(f"{name} (not shown): ", stream=sys.stderr)
    else:
        value = sys.stdin.buffer.read(1 << 20).decode("utf-8", errors="replace").removesuffix("\n").removesuffix("\r")
    if not is_secret_value(value):
        raise UsageError(
            f"the value for {name} is no token: one word of 8 to 4096 printable ASCII characters",
            hint="was there a space, a second line or nothing at all? for example: roost secrets set HF_TOKEN < token.txt",
        )
    return value


def _print(found: SecretList, host: str, *, as_json: bool) -> None:
    if as_json:
        print_document("secrets", found)
        return
    if not found.secrets:
        print_text(f"no tokens on {host}; `roost secrets set HF_TOKEN --host {host}` reads one from standard input")
    for secret in found.secrets:
        print_text(_line(secret))
    if found.note:
        narrate(f"note: {found.note}")


def _line(secret: Secret) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(secret.set_at))
    words = f"{secret.name:<24} set {when} UTC by {secret.set_by}, kept "
    if secret.state == "gone":
        return f"{secret.name:<24} GONE since the host restarted: set it again, or remove it"
    return words + ("in memory until the host restarts" if secret.kept_in == "memory" else "on disk")
