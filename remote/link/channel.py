"""The two pipes of a link as lines: an own buffer and split on the way in, one writer with back-pressure on the way out."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable

from remote.errors import UsageError
from remote.protocol.codec import MAX_LINE_BYTES, READY_MARKER, ProtocolError, encode_line
from remote.protocol.frames import HostFrame

_READ_BYTES = 1 << 16
_BEHIND_BYTES = 1 << 16


class Channel:
    """Standard input and output of this process, taken over: stray prints go to standard error, children inherit neither."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cover: Callable[[bytes], bytes] = bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._cover = cover
        self._turn = asyncio.Lock()
        self.broken = asyncio.Event()

    @classmethod
    async def take_over_stdio(cls, cover: Callable[[bytes], bytes]) -> "Channel":
        """Take both pipes and say that the host is ready; every line passes `cover`. Raises UsageError where they are plain files."""
        if not all(_can_be_awaited(descriptor) for descriptor in (0, 1)):
            raise UsageError("a link speaks over pipes or sockets, not over files or /dev/null")
        loop = asyncio.get_running_loop()
        source, sink = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        os.dup2(2, 1)
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
        channel = cls(reader, asyncio.StreamWriter(transport, protocol, None, loop), cover)
        await channel._write(READY_MARKER + b"\n")
        return channel

    async def lines(self) -> AsyncIterator[bytes]:
        """Every line from the console until it hangs up; raises ProtocolError on one that never seems to end."""
        rest = b""
        while data := await self._reader.read(_READ_BYTES):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > MAX_LINE_BYTES:
                raise ProtocolError(f"a line of more than {MAX_LINE_BYTES} bytes")

    @property
    def is_behind(self) -> bool:
        """Whether the console takes less than it is sent, so that what can be replaced should be dropped."""
        return self._turn.locked() or self._writer.transport.get_write_buffer_size() > _BEHIND_BYTES

    async def send(self, frame: HostFrame) -> None:
        """Send a frame and wait until there is room for the next; raises ProtocolError, ConnectionError."""
        await self._write(self._cover(encode_line(frame)))

    async def _write(self, line: bytes) -> None:
        async with self._turn:
            try:
                self._writer.write(line)
                await self._writer.drain()
            except ConnectionError:
                self.broken.set()
                raise


def _can_be_awaited(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
