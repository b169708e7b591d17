"""The screen in a browser: textual-serve, which starts one for every page that is opened, behind a guard against other web pages."""

import asyncio
import ipaddress
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from console.errors import UsageError

_SHUTDOWN_S = 10.0
"""How long a screen has to close once the server is told to end."""

_NOTHING_FROM_ELSEWHERE = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
)
"""textual-serve's page asks Google for a font, which would tell Google; that no other page may frame it keeps clicks a person's own."""


class ScreenServer(Server):
    """Serves the screen on `roost_host` at an address of this machine; each page that is opened is a screen of its own."""

    def __init__(self, roost_host: str, address: str, port: int) -> None:
        words = ["env", "TEXTUAL_FPS=15", sys.executable, "-m", "console.ui", roost_host]
        super().__init__(f"exec {shlex.join(words)}", host=address, port=port, title=f"Roost on {roost_host}")
        self._open: set[asyncio.Task[object]] = set()

    async def run(self, tell: Callable[[str], None]) -> None:
        """Serve until it is cancelled or told to end (SIGTERM); tells the address once it answers. Raises UsageError for one that cannot be had."""
        told_to_end = asyncio.Event()
        runner = web.AppRunner(await self._make_app(), shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, self.host, self.port).start()
            except (OSError, OverflowError) as error:
                what = getattr(error, "strerror", None) or str(error)
                raise UsageError(
                    f"cannot serve on {self.host}, port {self.port}: {what}", hint="choose another one with --port"
                ) from error
            port = runner.addresses[0][1]
            tell(f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}/")
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_end.set)
            await told_to_end.wait()
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
            await runner.cleanup()

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guard)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Any page in the same browser can reach this port: only this server's own page may, under a name that is its own."""
        origin = request.headers.get("Origin")
        if not is_own_name(request.host, self.host):
            raise web.HTTPForbidden(text=f"{request.host!r} is no name of this server")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text=f"{origin!r} is another page than this server's own")
        answer = await handler(request)
        if not answer.prepared:
            answer.headers["Content-Security-Policy"] = _NOTHING_FROM_ELSEWHERE
        return answer

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        """The page; it names this server as the browser does, which may be at the other end of a tunnel."""
        self.public_url = f"{request.scheme}://{request.host}"
        return await super().handle_index(request)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """One screen, until its page or the server is closed."""
        task = asyncio.current_task()
        assert task is not None, "a request is served by a task"
        websocket = web.WebSocketResponse(heartbeat=15)
        await websocket.prepare(request)
        screen = ScreenProcess(
            self.command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=websocket.close,  # pyright: ignore[reportArgumentType] - what it returns is passed over
            download_manager=self.download_manager,
        )
        self._open.add(task)
        try:
            await screen.start(to_int(request.query.get("width", ""), 80), to_int(request.query.get("height", ""), 24))
            await self._process_messages(websocket, screen)
        except asyncio.CancelledError:
            await websocket.close()
        finally:
            self._open.discard(task)
            await screen.stop()
        return websocket

    async def on_startup(self, app: web.Application) -> None:
        """The address is told by `run`, without a banner."""

    async def on_shutdown(self, app: web.Application) -> None:  # noqa: ARG002 - textual-serve's interface
        """Close the screens that are open."""
        for task in self._open:
            task.cancel()


class ScreenProcess(AppService):
    """The process behind one page; it is gone once it was stopped."""

    async def stop(self) -> None:
        """Ask it to close and wait for it; kill what does not close."""
        process = self._process
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_S):
                await super().stop()
                if process is not None:
                    await process.wait()
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def is_own_name(asked: str, address: str) -> bool:
    """Whether `asked` (a Host header) can mean the server at `address`; a name of somebody else's that leads here does not."""
    name = (urlsplit(f"//{asked}").hostname or "").rstrip(".")
    if name in ("localhost", address.lower()):
        return True
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return not is_loopback(address) and name in (socket.gethostname().lower(), socket.getfqdn().lower())
    return found.is_loopback or not is_loopback(address)


def is_loopback(address: str) -> bool:
    """Whether nobody but this machine's own users reaches `address`."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
