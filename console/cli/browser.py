"""`roost browser`."""

from typing import Annotated

import typer

from console import operations
from console.cli.options import Host
from console.cli.output import execute, narrate
from console.errors import ConfirmationNeeded


def browser(
    host: Host = operations.EMBEDDED,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port; 0 takes one that is free.")] = 8765,
    address: Annotated[
        str,
        typer.Option(
            "--address", metavar="ADDRESS", help="Where to listen; other machines reach only another than this one."
        ),
    ] = "127.0.0.1",
    without_password: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--without-password",
            help="Needed for an address that others reach: whoever opens the page can do everything that you can, unasked.",
        ),
    ] = False,
) -> None:
    """Serve the screen to a browser on this machine; each page is a screen of its own. Ctrl-C ends it, jobs go on.

    There is no password. From another machine, forward the port instead of opening it: ssh -L 8765:127.0.0.1:8765 THIS-MACHINE
    """
    from console.ui.browser import ScreenServer, is_loopback  # noqa: PLC0415 - a web server, only when it is wanted

    def tell(url: str) -> None:
        narrate(f"the screen on {host} is at {url} ; Ctrl-C ends it, jobs on the host go on")
        if not is_loopback(address):
            narrate("there is no password: whoever reaches this address can start and stop jobs as you")

    async def work() -> None:
        if not is_loopback(address) and not without_password:
            raise ConfirmationNeeded(
                f"others reach {address}, and there is no password: whoever opens the page can start and stop jobs as you",
                hint="better forward the port: ssh -L 8765:127.0.0.1:8765 THIS-MACHINE",
                next_command=f"roost browser --host {host} --port {port} --address {address} --without-password",
            )
        await operations.find_host(host)
        await ScreenServer(host, address, port).run(tell)

    execute(work(), as_json=False)
