"""What waits for the consumer: a reading or a heartbeat replaces an older one, states and logs are kept in order."""

import asyncio
from collections import deque
from collections.abc import Callable

from console.state.link import LinkState, Up
from remote.protocol.frames import Event, Heartbeat, LogData, Telemetry

CAPACITY = 4096
"""Above this many waiting events the link is read no further, unless an answer is waited for."""

CAPACITY_BYTES = 32 << 20
"""The same for the bytes of logs that wait: one event may hold a quarter of a MiB."""


class Inbox:
    """A queue with one consumer."""

    def __init__(self) -> None:
        self._events: deque[LinkState | Event] = deque()
        self._log_bytes = 0
        self._changed = asyncio.Condition()

    async def put(self, event: LinkState | Event) -> None:
        """Add an event; a reading, a heartbeat or a latency that nobody has taken yet gives way to a newer one."""
        async with self._changed:
            if isinstance(event, Telemetry | Heartbeat):
                self._events = deque(waiting for waiting in self._events if type(waiting) is not type(event))
            elif isinstance(event, Up) and self._events and isinstance(self._events[-1], Up):
                self._events.pop()
            self._events.append(event)
            self._log_bytes += _log_bytes(event)
            self._changed.notify_all()

    async def get(self) -> LinkState | Event:
        """The next event, when there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._events)
            event = self._events.popleft()
            self._log_bytes -= _log_bytes(event)
            self._changed.notify_all()
            return event

    async def wait_for_room(self, unless: Callable[[], bool]) -> None:
        """Return when the consumer has caught up, or when `unless` holds as `look_again` is called."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self.is_full() or unless())

    async def look_again(self) -> None:
        """Have `wait_for_room` see that somebody waits for an answer now."""
        async with self._changed:
            self._changed.notify_all()

    def is_full(self) -> bool:
        """Whether the link is not read because the consumer is behind."""
        return len(self._events) >= CAPACITY or self._log_bytes >= CAPACITY_BYTES


def _log_bytes(event: LinkState | Event) -> int:
    return len(event.data) if isinstance(event, LogData) else 0
