"""Opening a link: connect, bring the host side there, and hear who answers."""

import asyncio
import time

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, HostError
from console.link.channel import open_channel
from console.link.ingress import receive_frame
from console.link.wire import Wire
from console.state.link import Up
from remote.protocol.codec import ProtocolError, encode_line
from remote.protocol.frames import Answer, Call, Failure
from remote.protocol.requests import Hello, Welcome
from remote.protocol.version import PROTOCOL_VERSION


async def open_and_greet(host: HostConfig, actor: str, *, patience_s: float) -> tuple[Wire, Up]:
    """A channel whose host has said who it is; raises ConsoleError, after which nothing is left open."""
    return await greet(await open_channel(host), host.name, actor, patience_s=patience_s)


async def greet(channel: Wire, name: str, actor: str, *, patience_s: float) -> tuple[Wire, Up]:
    """Have the link process at the other end of a channel say who it is; raises ConsoleError, after which it is closed."""
    try:
        asked = time.monotonic()
        async with asyncio.timeout(patience_s):
            await channel.send(encode_line(Call(call_id=0, request=Hello(protocol=PROTOCOL_VERSION, actor=actor))))
            welcome = await _hear_welcome(channel)
    except (ConnectionError, ProtocolError, TimeoutError) as error:
        await channel.close()
        raise ConnectionFailed(f"{name} did not greet: {error or 'no answer in time'}") from error
    except BaseException:  # a cancelled task as well: the connection would stay open
        await channel.close()
        raise
    now = time.monotonic()
    return channel, Up(since=now, latency_s=now - asked, welcome=welcome)


async def _hear_welcome(channel: Wire) -> Welcome:
    async for line in channel.lines():
        match receive_frame(line):
            case Answer(reply=Welcome() as welcome):
                return welcome
            case Failure(error=error):
                raise HostError(error)
            case _:
                pass
    raise await channel.ended()
