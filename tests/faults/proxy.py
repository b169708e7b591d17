"""A network between console and host that can be made bad on demand. The faults are named as toxiproxy's toxics are."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_READ_BYTES = 1 << 14


class Network:
    """Forwards TCP connections to a port; every fault holds for the connections that are open and for later ones."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self.latency_s = 0.0
        self.bytes_per_s: float | None = None
        self.slice_bytes: int | None = None
        self.is_refusing = False
        self._flip_next = False
        self._flows = {"up": asyncio.Event(), "down": asyncio.Event()}
        for flow in self._flows.values():
            flow.set()
        self._open: list[asyncio.StreamWriter] = []

    def hold(self, *directions: str) -> None:
        """From now on nothing arrives in these directions (`up` to the host, `down` from it): a black hole."""
        for direction in directions:
            self._flows[direction].clear()

    def let_go(self) -> None:
        """What was held is delivered."""
        for flow in self._flows.values():
            flow.set()

    def flip_a_bit(self) -> None:
        """Damage the next block from the host."""
        self._flip_next = True

    def reset(self) -> None:
        """Break every connection by RST."""
        for writer in self._open:
            there = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._open.clear()

    def close(self) -> None:
        """End every connection by FIN."""
        for writer in self._open:
            writer.close()
        self._open.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open += [writer, there_writer]
        await asyncio.gather(
            self._pump("up", reader, there_writer), self._pump("down", there_reader, writer), return_exceptions=True
        )

    async def _pump(self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(_READ_BYTES):
            await self._flows[direction].wait()
            await asyncio.sleep(self.latency_s)
            if direction == "down" and self._flip_next:
                self._flip_next = False
                block = bytes([*block[:-1], block[-1] ^ 1])
            step = self.slice_bytes or len(block)
            for begin in range(0, len(block), step):
                writer.write(block[begin : begin + step])
                await writer.drain()
                if self.bytes_per_s is not None:
                    await asyncio.sleep(step / self.bytes_per_s)
        writer.close()


@asynccontextmanager
async def network_to(target: int) -> AsyncIterator[Network]:
    """A network in front of a port, on a port of its own."""
    network = Network(target)
    server = await asyncio.start_server(network.serve, "127.0.0.1", 0)
    network.port = server.sockets[0].getsockname()[1]
    yield network
    network.let_go()
    network.reset()
    server.close()
