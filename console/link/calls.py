"""The calls that wait for an answer: each has a number, and is sent again over a new link until it is answered."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from console.errors import HostError
from remote.protocol.errors import ErrorInfo
from remote.protocol.frames import Answer, Failure
from remote.protocol.requests import Reply, Request


class Waiting(NamedTuple):
    """A call without its answer."""

    number: int
    request: Request
    reply: asyncio.Future[Reply]


class Calls:
    """Numbers calls and matches answers to them; an answer that nobody waits for is dropped."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting] = {}
        self._last = 0

    @contextmanager
    def open(self, request: Request) -> Iterator[Waiting]:
        """A call that waits for as long as this lasts."""
        self._last += 1
        waiting = Waiting(self._last, request, asyncio.get_running_loop().create_future())
        self._waiting[waiting.number] = waiting
        try:
            yield waiting
        finally:
            del self._waiting[waiting.number]

    def take(self, frame: Answer | Failure) -> None:
        """Give an answer to who waits for it."""
        waiting = self._waiting.get(frame.call_id)
        if waiting is None or waiting.reply.done():
            return
        match frame:
            case Answer(reply=reply):
                waiting.reply.set_result(reply)
            case Failure(error=error):
                waiting.reply.set_exception(HostError(error))

    def fail_all(self, error: ErrorInfo) -> None:
        """No answer will come any more."""
        for waiting in self.unanswered():
            waiting.reply.set_exception(HostError(error))

    def unanswered(self) -> list[Waiting]:
        """What a new link has to be asked again."""
        return [waiting for waiting in self._waiting.values() if not waiting.reply.done()]

    def is_anyone_waiting(self) -> bool:
        """Whether the link must be read on, even when the consumer of its events is behind."""
        return bool(self._waiting)
