"""Connections to hosts that stay open between calls."""

import asyncio
from types import TracebackType
from typing import Self

from console import operations
from console.operations import Session
from console.state.link import Closed


class Sessions:
    """One open session a host and client; closed at the end."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[asyncio.Task[None], asyncio.Future[Session]]] = {}
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        await asyncio.gather(*(task for task, _ in self._held.values()), return_exceptions=True)

    async def get(self, host: str, actor: str) -> Session:
        """The session with `host` in the name of `actor`; raises ConsoleError where there is none to be had."""
        key = host, actor
        held = self._held.get(key)
        if held is None or held[0].done() or (held[1].done() and isinstance(held[1].result().state, Closed)):
            opened: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
            held = asyncio.create_task(self._hold(host, actor, opened)), opened
            self._held[key] = held
        return await asyncio.shield(held[1])

    async def _hold(self, host: str, actor: str, opened: "asyncio.Future[Session]") -> None:
        try:
            async with operations.open_host(host, actor=actor) as session:
                opened.set_result(session)
                await self._closing.wait()
        except Exception as error:  # whoever waits for the session is told, whatever it is
            if opened.done():
                raise
            opened.set_exception(error)
