"""Bringing finished artifacts from a host to this machine and from here to a host, over a connection of their own."""

from pathlib import Path

from console.errors import UsageError
from console.link.bulk import OnAdvance, OnRetry, Transfer, transfer
from console.operations import find_host
from remote.protocol.bulk import BulkDone


async def pull(host: str, artifact: str, local: Path, *, on_advance: OnAdvance, on_retry: OnRetry) -> BulkDone:
    """Bring the artifact at `artifact` (absolute, or below the host's root) to the name `local` on this machine."""
    what = Transfer("pull", _absolute(local), artifact)
    return await transfer(await find_host(host), what, on_advance=on_advance, on_retry=on_retry)


async def push(
    host: str, local: Path, remote: str, *, actor: str, on_advance: OnAdvance, on_retry: OnRetry
) -> BulkDone:
    """Bring the artifact `local` of this machine to the name `remote` (absolute, or below the host's root)."""
    if not local.is_dir():
        raise UsageError(f"there is no directory {local}", hint="name the directory of a finished artifact")
    what = Transfer("push", _absolute(local), remote, actor)
    return await transfer(await find_host(host), what, on_advance=on_advance, on_retry=on_retry)


def _absolute(path: Path) -> Path:
    """Without `..`, and with the last name as it is: a link there is no directory to write into."""
    place = path.expanduser().absolute()
    return place.parent.resolve() / place.name if place.name != ".." else place.resolve()
