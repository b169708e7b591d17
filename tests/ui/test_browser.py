"""The screen in a browser: a real server, whose page and screen are its own, and which other web pages cannot use."""

import asyncio
import socket
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import pytest
from typer.testing import CliRunner

from console.cli.main import app
from console.errors import UsageError
from console.ui.browser import ScreenServer, is_own_name


@pytest.fixture
def nobody(tmp_path, monkeypatch) -> str:
    """The name of a host at whose port nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        for name in ("CONFIG", "STATE", "DATA"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
        (tmp_path / "config/roost").mkdir(parents=True)
        configuration = f'[hosts.lab]\naddress = "127.0.0.1"\nport = {taken.getsockname()[1]}\n'
        (tmp_path / "config/roost/roost.toml").write_text(configuration)
        yield "lab"


@asynccontextmanager
async def served(host: str):
    told: asyncio.Queue[str] = asyncio.Queue()
    server = asyncio.create_task(ScreenServer(host, "127.0.0.1", 0).run(told.put_nowait))
    async with aiohttp.ClientSession() as client:
        yield client, await told.get()
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


async def test_a_page_shows_the_screen_which_ends_with_the_server(nobody) -> None:
    async with served(nobody) as (client, url):
        async with client.get(url) as page:
            assert page.status == 200
            assert "Roost on lab" in await page.text()
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        socket_url = f"ws://{urlsplit(url).netloc}/ws?width=100&height=30"
        async with client.ws_connect(socket_url, origin=url.rstrip("/")) as screen:
            await screen.send_json(["focus"])
            drawn = b""
            async for message in screen:
                drawn += message.data if isinstance(message.data, bytes) else b""
                if b"Overview" in drawn and b"not reached for" in drawn:
                    break
            await screen.send_json(["stdin", "q"])
            async for message in screen:
                drawn += message.data if isinstance(message.data, bytes) else b""
            assert screen.closed


async def test_another_page_and_another_name_are_refused(nobody) -> None:
    async with served(nobody) as (client, url):
        async with client.get(url, headers={"Host": "rebound.example"}) as page:
            assert page.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await client.ws_connect(f"ws://{urlsplit(url).netloc}/ws", origin="http://elsewhere.example")


async def test_a_port_that_is_taken_is_told(nobody) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot serve on 127"):
            await ScreenServer(nobody, "127.0.0.1", taken.getsockname()[1]).run(print)


@pytest.mark.parametrize(
    ("asked", "address", "is_own"),
    [
        ("localhost:9000", "127.0.0.1", True),
        ("127.0.0.1:8765", "127.0.0.1", True),
        ("[::1]:8765", "::1", True),
        ("10.0.0.7:8765", "127.0.0.1", False),
        ("rebound.example", "127.0.0.1", False),
        ("10.0.0.7:8765", "0.0.0.0", True),
        ("rebound.example", "0.0.0.0", False),
        ("lab.example:80", "lab.example", True),
        ("", "127.0.0.1", False),
    ],
)
def test_which_names_are_a_servers_own(asked: str, address: str, is_own: bool) -> None:
    assert is_own_name(asked, address) is is_own


def test_an_address_that_others_reach_needs_a_word_that_there_is_no_password(nobody) -> None:
    refused = CliRunner().invoke(app, ["browser", "--host", nobody, "--address", "0.0.0.0"])
    assert refused.exit_code == 6
    assert "there is no password" in refused.stderr
    assert "--without-password" in refused.stderr
