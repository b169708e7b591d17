"""`roost approvals`."""

from typing import Annotated

import typer

from console import operations, operations_approvals
from console.cli.approvals_text import approval_lines, inbox_lines
from console.cli.manners import agreed
from console.cli.options import ACTOR, Host, Json, Timeout
from console.cli.output import EXIT_CODES, execute, narrate, print_document, print_text
from console.cli.verbs import Verbs
from console.errors import ConfirmationNeeded
from remote.protocol.approvals import Approval, ApprovalList
from remote.protocol.errors import ErrorCode

app = Verbs(
    help="What agents and scripts asked for and a person has to approve or refuse; the screen shows the same under its key a.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="REQUEST", help="A request, as `roost approvals list` names it.")]
Seen = Annotated[
    str | None,
    typer.Option("--confirm", metavar="FINGERPRINT", help="The fingerprint that `list` shows, to do it unasked."),
]
Note = Annotated[str, typer.Option("--note", help="A word for whoever asked.")]


@app.command("list")
def list_all(host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """List what waits for a person, then what was decided, the newest first."""

    async def work() -> ApprovalList:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_approvals.list_approvals(session)

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("approvals", found)
        return
    print_text("\n".join(inbox_lines(found)))
    if found.omitted:
        narrate(f"{found.omitted} older ones are left out")


@app.command()
def wait(
    name: Name,
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Wait until a person has decided; exit 0 when it was approved and done, 5 when not, 4 when the time is up and it waits on.

    A change that failed exits as its own verb would.
    """

    async def work() -> Approval:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_approvals.wait_for_approval(session, name, timeout_s=timeout)

    found = execute(work(), as_json=as_json)
    _print(found, as_json=as_json)
    raise typer.Exit(exit_code_of(found))


@app.command()
def approve(
    name: Name,
    host: Host = operations.EMBEDDED,
    confirm: Seen = None,
    note: Note = "",
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Approve a request, which makes exactly its change, or is refused because the world changed since; asks first.

    For a person: whoever asked for it does not approve it.
    """
    _decide(name, host, confirm, note, approve=True, as_json=as_json)


@app.command()
def refuse(
    name: Name,
    host: Host = operations.EMBEDDED,
    confirm: Seen = None,
    note: Note = "",
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Refuse a request; whoever asked is told, and nothing is done."""
    _decide(name, host, confirm, note, approve=False, as_json=as_json)


def exit_code_of(approval: Approval) -> int:
    """0 for a change that was made, or that waits; that of its error; 5 for a no."""
    if approval.error is not None:
        return EXIT_CODES[approval.error.code]
    return 0 if approval.state in ("waiting", "approved") else EXIT_CODES[ErrorCode.PRECONDITION]


def _decide(name: str, host: str, confirm: str | None, note: str, *, approve: bool, as_json: bool) -> None:
    async def work() -> Approval:
        async with operations.open_host(host, actor=ACTOR) as session:
            seen = await operations_approvals.get_approval(session, name)
            if confirm is None:
                narrate("\n".join(approval_lines(seen)))
                _require_yes(seen, host, approve=approve)
            return await operations_approvals.decide_approval(
                session, name, confirm or seen.fingerprint, approve=approve, note=note
            )

    found = execute(work(), as_json=as_json)
    _print(found, as_json=as_json)
    raise typer.Exit(exit_code_of(found) if approve else 0)


def _require_yes(seen: Approval, host: str, *, approve: bool) -> None:
    verb = "approve" if approve else "refuse"
    if seen.state == "waiting" and not agreed(f"{verb.capitalize()} this on {host}?"):
        raise ConfirmationNeeded(
            f"to {verb} {seen.approval_id} on {host} needs a person",
            next_command=f"roost approvals {verb} {seen.approval_id} --host {host} --confirm {seen.fingerprint}",
        )


def _print(found: Approval, *, as_json: bool) -> None:
    if as_json:
        print_document("approval", found)
    else:
        print_text("\n".join(approval_lines(found)))
