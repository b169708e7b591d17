"""The channel's back-pressure, on a pipe that nobody reads."""

import asyncio
import os

from remote.link.channel import Channel
from remote.protocol.codec import decode_host_frame
from remote.protocol.frames import LogData

CHUNK = LogData(job_id="speaker", offset=0, data=b"x" * 200_000)


async def open_channel(sink: int) -> Channel:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(sink, "wb", 0))
    return Channel(asyncio.StreamReader(), asyncio.StreamWriter(transport, protocol, None, loop))


async def test_a_channel_is_behind_until_its_reader_caught_up():
    take, give = os.pipe()
    channel = await open_channel(give)
    assert not channel.is_behind
    sending = asyncio.create_task(channel.send(CHUNK))
    await asyncio.sleep(0)
    assert channel.is_behind
    assert not sending.done(), "a frame that may not be dropped waits"
    line = b""
    while not line.endswith(b"\n"):
        line += await asyncio.to_thread(os.read, take, 1 << 16)
    await sending
    assert decode_host_frame(line) == CHUNK
    assert not channel.is_behind
    os.close(take)


async def test_a_channel_whose_reader_is_gone_says_so():
    take, give = os.pipe()
    channel = await open_channel(give)
    os.close(take)
    try:
        while True:
            await channel.send(CHUNK)
    except ConnectionError:
        assert channel.broken.is_set()
