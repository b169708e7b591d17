"""Hosts whose devices are played: apart from the embedded host, on what is installed for it, from the beginning each time."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from console import operations, operations_demo, operations_telemetry
from console.cli.main import app
from console.config.hosts import HostConfig
from console.embedded import demo, lifecycle, nvml_standin
from console.errors import ConsoleError, UsageError
from remote.jobs import locks
from remote.protocol.errors import ErrorCode
from tests.jobs.workshop import end_everything_below


@pytest.fixture
def installed(embedded_data: Path, tmp_path: Path) -> Iterator[Path]:
    """The data directory with an engine's environment that is this interpreter."""
    engine = embedded_data / "embedded/engine/bin/python"
    engine.parent.mkdir(parents=True)
    engine.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    engine.chmod(0o700)
    (embedded_data / "embedded/root/models/small").mkdir(parents=True)
    yield embedded_data
    end_everything_below(tmp_path)
    for root in (embedded_data / "demo").glob("*/root"):
        shutil.rmtree(locks.lock_directory(root), ignore_errors=True)


@pytest.fixture
def with_compiler() -> None:
    if nvml_standin.compiler() is None:
        pytest.skip("no C compiler here to build the stand-in for NVML")


async def test_a_scenario_is_a_host_of_its_own_with_played_devices(installed: Path, with_compiler: None) -> None:
    host = await operations_demo.start_demo("one_lost")
    assert host.name == "demo-one_lost"
    async with operations.open_host("demo-one_lost", actor="ann") as session:
        sample = await operations_telemetry.read_telemetry(session)
    assert sample.gpu_source == "simulated"
    assert [gpu.gpu_index for gpu in sample.gpus if gpu.error] == [3]
    assert (installed / "demo/one_lost/root/models/small").is_dir(), "the models are those of the embedded host"
    assert not (installed / "embedded/server").exists(), "the embedded host is left alone"


async def test_a_scenario_begins_anew_when_asked_and_when_its_server_was_not_there(
    installed: Path, with_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_server(home: object) -> HostConfig:
        return HostConfig(address="127.0.0.1")

    running = False

    async def is_running(home: object) -> bool:
        return running

    monkeypatch.setattr(lifecycle, "ensure_running", no_server)
    monkeypatch.setattr(lifecycle, "is_running", is_running)
    file = installed / "demo/healthy/scenario.txt"
    seen = []
    for running, anew in ((False, False), (True, False), (True, True), (False, False)):  # noqa: B007 - read by is_running
        await demo.ensure_running("healthy", anew=anew)
        seen.append(file.stat().st_ino)
    first, kept, again, restarted = seen
    assert first == kept
    assert kept != again
    assert again != restarted


async def test_a_name_that_is_no_scenario_is_answered_with_those_there_are(installed: Path) -> None:
    with pytest.raises(UsageError) as caught:
        await operations.find_host("demo-nothing")
    assert "one_xid" in (caught.value.info.hint or "")


async def test_without_a_compiler_it_is_said_what_to_install(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConsoleError) as caught:
        await operations_demo.start_demo("healthy")
    assert caught.value.info.code == ErrorCode.PRECONDITION
    assert "gcc" in (caught.value.info.hint or "")


async def test_without_an_installation_it_is_said_how_to_install(embedded_data: Path) -> None:
    with pytest.raises(ConsoleError) as caught:
        await operations_demo.start_demo("healthy")
    assert caught.value.info.next_command == "roost embedded prepare"


def test_what_was_compiled_is_kept_until_its_source_changes(tmp_path: Path, with_compiler: None) -> None:
    library = nvml_standin.build(tmp_path)
    built = library.stat().st_ino
    assert nvml_standin.build(tmp_path).stat().st_ino == built
    (tmp_path / "nvml.c").write_text("int other;")
    assert nvml_standin.build(tmp_path).stat().st_ino != built


def test_every_scenario_is_described_and_whole() -> None:
    for name, description in operations_demo.list_scenarios().items():
        assert description.endswith("."), name
        text = nvml_standin.scenario_text(name)
        assert "simulated" in text
        assert "extends" not in text


def test_the_command_lists_scenarios_and_refuses_others(installed: Path) -> None:
    listed = CliRunner().invoke(app, ["demo", "--scenario", "list", "--json"])
    assert listed.exit_code == 0
    assert "one_xid" in json.loads(listed.stdout)["scenarios"]
    refused = CliRunner().invoke(app, ["demo", "--scenario", "nothing", "--json"])
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["code"] == "usage"


def test_the_command_opens_the_screen_on_the_host_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, installed: Path
) -> None:
    opened: list[str] = []

    async def start(scenario: str) -> HostConfig:
        return HostConfig(name=f"demo-{scenario}", address="127.0.0.1")

    monkeypatch.setattr("console.ui.app.run_screen", lambda host: opened.append(host) or 0)
    monkeypatch.setattr(operations_demo, "start_demo", start)
    assert CliRunner().invoke(app, ["demo"]).exit_code == 0
    assert CliRunner().invoke(app, ["demo", "--scenario", "one-idle"]).exit_code == 0
    assert opened == ["embedded", "demo-one_idle"]
    named = CliRunner().invoke(app, ["demo", "--scenario", "one_idle", "--json"])
    assert '"host": "demo-one_idle"' in named.stdout
    assert len(opened) == 2
