"""Tools that bring finished artifacts between a host and the machine that `roost mcp` runs on."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from console import operations_bulk
from console.cli.mcp.arguments import Arguments
from console.cli.mcp.tool import Tell, Tool
from console.operations import Session


class Pulling(Arguments, frozen=True, kw_only=True):
    """An artifact of the host, and the name that it gets here."""

    artifact: Annotated[str, Meta(description="Its directory on the host, absolute or below ROOT: runs/NAME/drafter.")]
    local: Annotated[str, Meta(description="Absolute, on this machine; nothing may have that name.")]


class Pushing(Arguments, frozen=True, kw_only=True):
    """An artifact of this machine, and the name that it gets on the host."""

    local: Annotated[str, Meta(description="Absolute, on this machine.")]
    remote: Annotated[str, Meta(description="Absolute, or below ROOT; nothing may have that name.")]


def _go_on(reason: str, wait_s: float) -> None:
    """A transfer goes on by itself after a cut; its progress shows it."""


async def _pull(session: Session, asked: Pulling, tell: Tell) -> object:
    return await operations_bulk.pull(
        session.host.name, asked.artifact, Path(asked.local), on_advance=tell, on_retry=_go_on
    )


async def _push(session: Session, asked: Pushing, tell: Tell) -> object:
    return await operations_bulk.push(
        session.host.name, Path(asked.local), asked.remote, actor=session.actor, on_advance=tell, on_retry=_go_on
    )


TRANSFER_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="pull_artifact",
        description="Bring a finished artifact (mapping, drafter, report, store) to this machine: hashed, gone on with after a cut, never over anything.",
        needs="operate",
        takes=Pulling,
        document="transfer",
        work=_pull,
        is_long=True,
        can_be_asked=False,
    ),
    Tool(
        name="push_artifact",
        description="Bring a finished artifact of this machine to a host: hashed, gone on with after a cut, never over anything.",
        needs="operate",
        takes=Pushing,
        document="transfer",
        work=_push,
        is_long=True,
        can_be_asked=False,
    ),
)
"""Tools for transfers."""
