"""One HTTP/1.1 request to a server on the host's loopback, through the SSH connection: no port is opened on this machine."""

import asyncio
from typing import NamedTuple, Protocol

import asyncssh
import h11
from asyncssh.constants import OPEN_ADMINISTRATIVELY_PROHIBITED

from console.errors import ConnectionFailed

MAX_BODY_BYTES = 64 << 20
"""A longer answer is refused: what is that large is a file, and files are pulled."""

_READ_BYTES = 1 << 16


class HttpReply(NamedTuple):
    """Status, media type (empty when none is named) and body of an answer."""

    status: int
    content_type: str
    body: bytes


class Reader(Protocol):
    """The part of a stream's reader that a request needs."""

    async def read(self, n: int, /) -> bytes:
        """At most `n` bytes; nothing at the end."""
        ...


class Writer(Protocol):
    """The part of a stream's writer that a request needs."""

    def write(self, data: bytes, /) -> None:
        """Queue bytes."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


async def open_port(connection: asyncssh.SSHClientConnection, port: int) -> tuple[Reader, Writer]:
    """A stream to a loopback port of the host (direct-tcpip, which takes no session of the server's MaxSessions).

    Raises ConnectionFailed when nothing listens there, the server forbids it or the connection is gone.
    """
    try:
        reader, writer = await connection.open_connection("127.0.0.1", port, encoding=None)
    except asyncssh.ChannelOpenError as error:
        if error.code == OPEN_ADMINISTRATIVELY_PROHIBITED:
            raise ConnectionFailed(
                f"the SSH server forbids connections to port {port} of its host: {error.reason}",
                hint="AllowTcpForwarding of its sshd must be `yes` or `local`, and PermitOpen must not exclude the port",
                retryable=False,
            ) from error
        raise ConnectionFailed(
            f"nothing answers at port {port} of the host: {error.reason}", hint="has the server ended? see its log"
        ) from error
    except (OSError, asyncssh.Error) as error:
        raise ConnectionFailed(f"port {port} of the host cannot be reached: {error}", hint="try again") from error
    return reader, writer


async def exchange(
    stream: tuple[Reader, Writer], authority: str, path: str, *, body: bytes | None, timeout_s: float
) -> HttpReply:
    """Send one request (POST of JSON when there is a body) and read the answer; the stream is closed then.

    Raises ConnectionFailed when the server hangs up, is silent for too long or does not speak HTTP.
    """
    _, writer = stream
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchange(stream, authority, path, body)
    except TimeoutError:
        raise ConnectionFailed(
            f"the server at {authority} took the request and did not answer within {timeout_s:g} s",
            hint="it may be busy; see its log, or give it longer with --timeout",
        ) from None
    except h11.RemoteProtocolError as error:
        raise ConnectionFailed(f"the server at {authority} broke off or does not speak HTTP: {error}") from error
    except (OSError, asyncssh.Error) as error:
        raise ConnectionFailed(f"the connection to the server at {authority} broke: {error}") from error
    finally:
        writer.close()


async def _exchange(stream: tuple[Reader, Writer], authority: str, path: str, body: bytes | None) -> HttpReply:
    reader, writer = stream
    http = h11.Connection(h11.CLIENT)
    for event in _request(authority, path, body):
        writer.write(http.send(event) or b"")
    await writer.drain()
    status, content_type, parts, size = 0, "", [], 0
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                http.receive_data(await reader.read(_READ_BYTES))
            case h11.Response(status_code=status, headers=headers):
                content_type = next((value.decode("latin-1") for name, value in headers if name == b"content-type"), "")
            case h11.Data(data=data):
                parts.append(bytes(data))
                size += len(data)
                if size > MAX_BODY_BYTES:
                    raise ConnectionFailed(
                        f"the server at {authority} answers with more than {MAX_BODY_BYTES} bytes", retryable=False
                    )
            case h11.EndOfMessage():
                return HttpReply(status, content_type, b"".join(parts))
            case _:
                pass


def _request(authority: str, path: str, body: bytes | None) -> list[h11.Event]:
    headers = [("Host", authority), ("Accept", "*/*"), ("Connection", "close")]
    if body is None:
        return [h11.Request(method="GET", target=path, headers=headers), h11.EndOfMessage()]
    headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    return [h11.Request(method="POST", target=path, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
