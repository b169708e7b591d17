"""`roost notifications`."""

import base64
import secrets

import typer

from console import operations, operations_notifications
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.verbs import Verbs
from console.state.moments import format_moment
from console.state.sanitize import one_line
from remote.protocol.notifications import (
    WEBHOOK_KEY,
    WEBHOOK_URL,
    Delivered,
    GivenUp,
    NotificationList,
    NotificationRecord,
    Unsent,
    Waiting,
)

app = Verbs(
    help="What a host tells people who are not looking: runs that ended, verdicts, short disks, faulty devices.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_TRIED_WITHIN_S = 30.0


@app.command("list")
def list_all(host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """List what was raised, newest first, and whether it was delivered."""

    async def work() -> NotificationList:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_notifications.list_notifications(session)

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("notifications", found)
        return
    print_text("\n".join(line for record in found.records for line in _lines(record)) or "nothing was raised yet")
    if not found.has_webhook:
        narrate(f"no webhook is set: roost secrets set {WEBHOOK_URL} --host {host}, and {WEBHOOK_KEY}")


@app.command("try")
def try_webhook(host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """Have the host post a test to its webhook; exit 1 when the receiver did not take it."""

    async def work() -> NotificationRecord:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_notifications.try_webhook(session, timeout_s=_TRIED_WITHIN_S)

    record = execute(work(), as_json=as_json)
    if as_json:
        print_document("notification", record)
    else:
        print_text("\n".join(_lines(record)))
    raise typer.Exit(0 if isinstance(record.delivery, Delivered) else 1)


@app.command()
def key(as_json: Json = False) -> None:  # noqa: FBT002
    """Print a new key to sign webhooks with; it is kept nowhere: give it to the host (`roost secrets set`) and to the receiver."""
    made = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    if as_json:
        print_document("webhook_key", made)
    else:
        print_text(made)


def _lines(record: NotificationRecord) -> list[str]:
    raised = record.notification
    words = f"{format_moment(raised.at)}  {raised.kind.replace('_', ' ')}  {raised.text}"
    return [one_line(words), one_line(f"    {_delivery_words(record)}")]


def _delivery_words(record: NotificationRecord) -> str:
    match record.delivery:
        case Unsent():
            return "not posted: no webhook was set"
        case Waiting(attempts=0):
            return "is about to be posted"
        case Waiting(attempts=attempts, trouble=trouble):
            return f"tried {attempts} times, is tried again: {trouble}"
        case Delivered(attempts=attempts):
            return "delivered" if attempts == 1 else f"delivered at attempt {attempts}"
        case GivenUp(attempts=attempts, trouble=trouble):
            return f"given up after {attempts} attempts: {trouble}"
