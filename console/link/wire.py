"""What a link needs of whatever carries its lines to the host."""

from collections.abc import AsyncIterator
from typing import Protocol

from console.errors import ConnectionFailed
from console.link.engine_http import Reader, Writer


class Wire(Protocol):
    """An open way to the host's link process."""

    async def send(self, data: bytes) -> None:
        """Write a line; raises ConnectionError when the link is gone."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """Lines until the link ends; raises ConnectionError for a broken link or a line that is too long."""
        ...

    async def ended(self) -> ConnectionFailed:
        """Why the link is over."""
        ...

    async def open_port(self, port: int) -> tuple[Reader, Writer]:
        """A stream to a loopback port of the host; raises ConnectionFailed."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...

    def abort(self, reason: str) -> None:
        """Drop a way that has gone silent; whoever reads it sees its end, and why."""
        ...
