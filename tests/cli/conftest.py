"""The command against a host that is only played."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
sys.path.insert(0, str(Path(__file__).parent))
from played_host import NOW, PlayedHost, sample_at

from console import operations
from console.cli.main import app
from remote.protocol.frames import Heartbeat, Telemetry


@pytest.fixture
def played_host(monkeypatch) -> PlayedHost:
    host = PlayedHost()

    @asynccontextmanager
    async def open_host(name, *, actor):
        yield host

    monkeypatch.setattr(operations, "open_host", open_host)
    return host


@pytest.fixture
def roost():
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return run


@pytest.fixture
def recorded(played_host) -> PlayedHost:
    """Ten minutes at 1 Hz with two minutes missing, up to now."""
    moments = [NOW - 600 + second for second in range(601) if not 200 <= second < 320]
    played_host.recorded = [sample_at(moment) for moment in moments]
    played_host.streamed = [
        Heartbeat(at=NOW),
        Telemetry(sample=sample_at(NOW - 0.5)),
        Telemetry(sample=sample_at(NOW + 0.5)),
    ]
    return played_host
