"""`roost pull` and `roost push`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from console import operations, operations_bulk
from console.cli.options import ACTOR, Host, Json
from console.cli.output import execute, narrate, print_document, print_text
from console.state.units import format_bytes
from remote.protocol.bulk import BulkAdvanced, BulkDone

_NARRATION_INTERVAL_S = 2.0


def pull(
    artifact: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT", help="Its directory on the host, absolute or below ROOT: runs/NAME/drafter."
        ),
    ],
    local: Annotated[
        Path, typer.Argument(metavar="LOCAL_DIR", help="The name that it gets here; nothing may have it.")
    ],
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Bring a finished artifact (mapping, drafter, report, store) to this machine; run again, it goes on where it broke off."""
    work = operations_bulk.pull(host, artifact, local, on_advance=_Narrator(), on_retry=_narrate_retry)
    _print(execute(work, as_json=as_json), as_json=as_json)


def push(
    local: Annotated[Path, typer.Argument(metavar="LOCAL_DIR", help="A finished artifact on this machine.")],
    remote: Annotated[
        str, typer.Argument(metavar="REMOTE_DIR", help="The name that it gets on the host, absolute or below ROOT.")
    ],
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Bring a finished artifact from this machine to a host; run again, it goes on where it broke off."""
    work = operations_bulk.push(host, local, remote, actor=ACTOR, on_advance=_Narrator(), on_retry=_narrate_retry)
    _print(execute(work, as_json=as_json), as_json=as_json)


class _Narrator:
    """Says from time to time how far it is, and how fast."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def __call__(self, advanced: BulkAdvanced) -> None:
        now = time.monotonic()
        if self._last is None:
            self._last = (now, advanced.bytes_done)
        since, done = self._last
        if now - since < _NARRATION_INTERVAL_S:
            return
        self._last = (now, advanced.bytes_done)
        rate = f"{format_bytes((advanced.bytes_done - done) / (now - since))}/s"
        share = 100 * advanced.bytes_done // max(1, advanced.bytes_total)
        narrate(f"{format_bytes(advanced.bytes_done)} of {format_bytes(advanced.bytes_total)} ({share} %), {rate}")


def _narrate_retry(reason: str, wait_s: float) -> None:
    narrate(f"connection lost ({reason}); going on in {wait_s:.0f} s")


def _print(done: BulkDone, *, as_json: bool) -> None:
    if as_json:
        print_document("transfer", done)
        return
    moved = (
        f"{format_bytes(done.bytes_moved)} moved"
        if done.bytes_moved or not done.bytes_total
        else "it was there already"
    )
    print_text(f"{done.path}: {done.files} files, {format_bytes(done.bytes_total)}, every hash right; {moved}")
