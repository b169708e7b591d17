"""The few questions that the server agent asks its engine, over loopback, with the standard library."""

import http.client
import json
import socket
from urllib.parse import urlsplit

from remote.agents.server.contract import Question


def free_port(wanted: int = 0) -> int:
    """A loopback port that nobody listens on at this moment, `wanted` where it is one."""
    with socket.socket() as listener:
        # Else connections that ended a moment ago keep it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", wanted))
        except OSError:
            listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(url: str, question: Question, *, timeout_s: float = 5.0) -> bytes | None:
    """The body of a 200 answer; None when nobody answers in time or the answer is another one."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    try:
        payload = None if question.body is None else json.dumps(question.body).encode()
        connection.request(question.method, question.path, body=payload, headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException):
        return None
    else:
        return content if response.status == http.client.OK else None
    finally:
        connection.close()
