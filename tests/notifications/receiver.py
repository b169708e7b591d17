"""A receiver of webhooks on loopback that answers as it is told to and remembers what it got."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Receiver:
    """`answers` are the statuses of the next requests; 204 when there are none left. 302 points to itself."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("location", receiver.url)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()
