"""HTTP to a server on the host's loopback, through the SSH connection, against a real job that listens there."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from console import operations_server
from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError
from console.link.client import HostLink
from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.protocol.errors import ErrorCode
from remote.protocol.requests import Ping
from remote.protocol.specs import MappingCopySpec, Spec
from tests.jobs.workshop import RELEASE, Workshop, end_everything_below
from tests.link.command import name_in_configuration, roost
from tests.link.servers import OpenSSH

SERVER = """
import http.server, json, os, pathlib, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/broken":
            return self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 1000\\r\\n\\r\\nhalf")
        self.answer(404 if self.path == "/nothing" else 200, {"path": self.path})

    def do_POST(self):
        self.answer(200, {"got": json.loads(self.rfile.read(int(self.headers["Content-Length"])))})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
ready = {"type": "server_ready", "url": "http://127.0.0.1:%d" % server.server_port, "engine": "sglang",
         "engine_version": "0", "model": "m", "pid": os.getpid(), "startup_s": 0.5}
with open(os.environ["ROOST_JOB_DIR"] + "/progress.jsonl", "w") as file:
    file.write(json.dumps({"type": "progress_record", "seq": 1, "at": 1.0, "event": ready}) + "\\n")
THEN
"""
SERVING = SERVER.replace("THEN", "server.serve_forever()")
CLOSED = SERVER.replace("THEN", "server.server_close(); import time; time.sleep(600)")
SILENT = SERVER.replace("THEN", "import time; time.sleep(600)")
NOT_UP = "import time; time.sleep(600)"


def plan_server(spec: Spec) -> LaunchPlan:
    assert isinstance(spec, MappingCopySpec)
    return LaunchPlan(agent=spec.destination, argv=[sys.executable, "-S", "-c", spec.source], stop_grace_s=1.0)


class ServerShop(Workshop):
    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = JobStore(root, RELEASE, sys.executable, plan=plan_server)

    def serve(self, program: str, agent: str = "server") -> str:
        spec = MappingCopySpec(source=program, destination=agent)
        self.store.start("serving", spec, actor="ann", op_id="start-serving")
        if program not in (NOT_UP, "pass"):
            self.wait_for(lambda: self.store.get("serving").progress_seq == 1)
        return "serving"


@pytest.fixture
def servers(embedded: HostConfig) -> Iterator[ServerShop]:
    yield ServerShop(Path(embedded.root))
    end_everything_below(Path(embedded.root))


async def test_a_server_is_asked_without_a_port_on_this_machine(embedded: HostConfig, servers: ServerShop) -> None:
    job = servers.serve(SERVING)
    async with HostLink(embedded, actor="ann") as link:
        reply = await operations_server.request_server(link, job, "/v1/models")
        assert (reply.status, json.loads(reply.body)) == (200, {"path": "/v1/models"})
        assert reply.content_type == "application/json"
        posted = await operations_server.request_server(link, job, "/generate", body=b'{"text": "caf\xc3\xa9"}')
        assert json.loads(posted.body) == {"got": {"text": "café"}}
        assert (await operations_server.request_server(link, job, "/nothing")).status == 404
        await link.call(Ping())


async def test_an_answer_that_breaks_off_is_no_answer(embedded: HostConfig, servers: ServerShop) -> None:
    async with HostLink(embedded, actor="ann") as link:
        with pytest.raises(ConnectionFailed, match="broke off"):
            await operations_server.request_server(link, servers.serve(SERVING), "/broken")


async def test_a_dead_port_is_an_error_and_the_link_lives(embedded: HostConfig, servers: ServerShop) -> None:
    async with HostLink(embedded, actor="ann") as link:
        with pytest.raises(ConnectionFailed, match="nothing answers at port"):
            await operations_server.request_server(link, servers.serve(CLOSED), "/health")
        await link.call(Ping())


async def test_a_silent_server_is_given_up(embedded: HostConfig, servers: ServerShop) -> None:
    async with HostLink(embedded, actor="ann") as link:
        with pytest.raises(ConnectionFailed, match="did not answer within"):
            await operations_server.request_server(link, servers.serve(SILENT), "/health", timeout_s=0.3)


@pytest.mark.parametrize(
    ("program", "agent", "words"),
    [(NOT_UP, "server", "not up yet"), (NOT_UP, "training", "no server but a training job")],
)
async def test_what_cannot_be_asked_is_a_precondition(
    embedded: HostConfig, servers: ServerShop, program: str, agent: str, words: str
) -> None:
    async with HostLink(embedded, actor="ann") as link:
        with pytest.raises(ConsoleError, match=words) as caught:
            await operations_server.request_server(link, servers.serve(program, agent), "/health")
    assert caught.value.info.code == ErrorCode.PRECONDITION


async def test_a_server_that_has_ended_is_a_precondition(embedded: HostConfig, servers: ServerShop) -> None:
    job = servers.serve(SERVING)
    servers.stop(job)
    async with HostLink(embedded, actor="ann") as link:
        with pytest.raises(ConsoleError, match="has ended") as caught:
            await operations_server.request_server(link, job, "/health")
    assert caught.value.info.code == ErrorCode.PRECONDITION


async def test_the_embedded_host_connects_to_nothing_but_its_loopback(embedded: HostConfig) -> None:
    async with HostLink(embedded, actor="ann") as link:
        assert link._open_channel is not None
        connection = link._open_channel._connection
        for elsewhere in ("10.0.0.1", "example.org", "::ffff:10.0.0.1"):
            with pytest.raises(asyncssh.ChannelOpenError, match=r"^Connection refused$"):
                await connection.open_connection(elsewhere, 80)


async def test_openssh_requests_take_no_session_and_a_ban_is_named(openssh: OpenSSH, tmp_path: Path) -> None:
    openssh.remember()
    shop = ServerShop(tmp_path / "root")
    job = shop.serve(SERVING)
    try:
        openssh.restart_with("MaxSessions 1")
        async with HostLink(openssh.config(shop.root), actor="ann") as link:
            for _ in range(12):
                assert (await operations_server.request_server(link, job, "/health")).status == 200
        openssh.restart_with("AllowTcpForwarding no")
        async with HostLink(openssh.config(shop.root), actor="ann") as link:
            with pytest.raises(ConnectionFailed, match="forbids connections"):
                await operations_server.request_server(link, job, "/health")
    finally:
        end_everything_below(shop.root)


def test_the_verb_prints_the_body(embedded: HostConfig, servers: ServerShop) -> None:
    job = servers.serve(SERVING)

    name_in_configuration(embedded)
    verb = ("server", "request", "--host", "lab", job)
    plain = roost(*verb, "/v1/models")
    assert (plain.returncode, plain.stdout) == (0, '{"path": "/v1/models"}')
    document = json.loads(roost(*verb, "/x", "--data", '{"a": 1}', "--json").stdout)
    assert document["reply"]["body"] == {"got": {"a": 1}}
    missing = roost(*verb, "/nothing")
    assert missing.returncode == 1
    assert "status 404" in missing.stderr
    assert roost(*verb, "/x", "--data", "{").returncode == 2
    assert roost(*verb, "no path").returncode == 2
