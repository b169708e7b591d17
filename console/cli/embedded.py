"""`roost embedded`."""

from console import operations_demo, operations_hosts
from console.cli.options import Json
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.verbs import Verbs
from console.documents import EmbeddedHost

app = Verbs(
    help="The embedded host: this machine behind a loopback SSH server, with a real engine on the CPU.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def prepare(as_json: Json = False) -> None:  # noqa: FBT002
    """Install the engine's environment (about 4 GB), the sample model and the conversations; does nothing when they are there."""

    async def work() -> None:
        operations_hosts.prepare_embedded(narrate)

    execute(work(), as_json=as_json)
    if as_json:
        print_document("embedded", EmbeddedHost(prepared=True))
    else:
        print_text("the embedded host is ready")


@app.command()
def stop(as_json: Json = False) -> None:  # noqa: FBT002
    """Stop the embedded host's SSH server, whose jobs go on, and every demo host with all that it runs."""

    async def work() -> tuple[bool, list[str]]:
        return await operations_hosts.stop_embedded(), await operations_demo.stop_demos()

    stopped, demos = execute(work(), as_json=as_json)
    if as_json:
        print_document("embedded", EmbeddedHost(stopped=stopped, demo_hosts=demos))
        return
    print_text("stopped; its jobs go on" if stopped else "the embedded host was not running")
    for name in demos:
        print_text(f"{name} stopped, with its jobs and its recorder")
