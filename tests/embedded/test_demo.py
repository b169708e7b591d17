"""Hosts whose devices are played: apart from the embedded host, on what is installed for it, from the beginning each time."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from console import operations, operations_demo, operations_telemetry
from console.cli.main import app
from console.config.hosts import HostConfig
from console.embedded import demo, lifecycle, nvml_standin
from console.errors import ConsoleError, UsageError
from remote.jobs import locks
from remote.protocol.errors import ErrorCode
from remote.protocol.jobs import Job, Running, is_over
from remote.protocol.telemetry import Diagnosis
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


async def until(condition: Callable[[], Awaitable[object]], timeout_s: float = 120.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := await condition()):
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.2)
    return found


async def exercises(session: operations.Session) -> list[Job]:
    return [job for job in await operations.list_jobs(session) if job.agent == "exercise"]


async def test_a_scenario_of_devices_at_work_has_a_job_that_holds_them(installed: Path, with_compiler: None) -> None:
    await operations_demo.start_demo("training")
    async with operations.open_host("demo-training", actor="ann") as session:
        (job,) = await exercises(session)
        assert isinstance(job.state, Running)
        assert job.gpus == list(range(8))

        async def is_playing() -> object:
            sample = await operations_telemetry.read_telemetry(session)
            return {gpu.owner_job_id for gpu in sample.gpus} == {job.job_id} and all(
                (gpu.gpu_utilization or 0.0) > 0.5 for gpu in sample.gpus
            )

        await until(is_playing)
        await operations_demo.start_demo("training")
        again, before = await exercises(session)
        assert isinstance(again.state, Running)
        assert is_over(before.state)


async def test_a_played_hosts_devices_are_no_others(installed: Path, with_compiler: None) -> None:
    for scenario in ("training", "one_idle"):
        await operations_demo.start_demo(scenario)
    for scenario in ("training", "one_idle"):
        async with operations.open_host(f"demo-{scenario}", actor="ann") as session:
            assert [job.gpus for job in await exercises(session)] == [list(range(8))]
        assert len(list((installed / f"demo/{scenario}/devices").glob("gpu*.lock"))) == 8


async def test_stopping_leaves_nothing_at_work(installed: Path, with_compiler: None) -> None:
    await operations_demo.start_demo("training")
    async with operations.open_host("demo-training", actor="ann") as session:
        await operations_telemetry.read_telemetry(session)
    stopped = await asyncio.to_thread(CliRunner().invoke, app, ["embedded", "stop", "--json"])
    assert json.loads(stopped.stdout)["embedded"] == {"stopped": False, "demo_hosts": ["demo-training"]}
    root = installed / "demo/training/root"
    assert {found.name.split("-")[0] for found in (root / "jobs").iterdir()} == {"recorder", "exercise"}
    assert all((job / "exit.json").exists() for job in (root / "jobs").iterdir())
    assert not await lifecycle.is_running(demo.demo_home("training"))
    assert await operations_demo.stop_demos() == []


@pytest.mark.slow
async def test_the_trouble_of_a_scenario_is_told_of_its_job(installed: Path, with_compiler: None) -> None:
    for scenario, code in {"spinning": "busy_not_working", "one_idle": "gpu_idle", "one_xid": "hardware"}.items():
        await operations_demo.start_demo(scenario)
        async with operations.open_host(f"demo-{scenario}", actor="ann") as session:

            async def told() -> list[Diagnosis]:
                return (await operations_telemetry.read_telemetry(session)).diagnoses

            found = await until(told, 180.0)
            assert [one.code for one in found] == [code], found
            (job,) = await exercises(session)
            assert found[0].job_id == job.job_id
        await operations_demo.stop_demos()


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

    monkeypatch.setattr("console.ui.start.run_screen", lambda host: opened.append(host) or 0)
    monkeypatch.setattr("console.cli.demo.require_terminal", lambda: None)
    monkeypatch.setattr(operations_demo, "start_demo", start)
    assert CliRunner().invoke(app, ["demo"]).exit_code == 0
    assert CliRunner().invoke(app, ["demo", "--scenario", "one-idle"]).exit_code == 0
    assert opened == ["embedded", "demo-one_idle"]
    named = CliRunner().invoke(app, ["demo", "--scenario", "one_idle", "--json"])
    assert '"host": "demo-one_idle"' in named.stdout
    assert len(opened) == 2
