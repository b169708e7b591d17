"""Embedded hosts with devices that are played: one for each scenario of the stand-in, each with jobs and readings of its own.

They use what is installed for the embedded host (engine, sample model, conversations) and leave that host as it is.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Container
from contextvars import ContextVar
from pathlib import Path

from console.config.hosts import HostConfig
from console.config.locations import data_directory
from console.embedded import lifecycle, nvml_standin
from console.embedded.locations import EmbeddedHome
from console.errors import ConnectionFailed
from console.link.client import HostLink
from remote.protocol.ids import new_job_id, new_op_id
from remote.protocol.jobs import Job, Stopping, is_over
from remote.protocol.requests import JobList, ListJobs, StartJob, StopJob
from remote.protocol.specs import ExerciseSpec

PREFIX = "demo-"
"""What the name of such a host begins with; the scenario follows."""

ACTOR = "demo"
"""Who the host's journal says asked for it."""

_SHARED = ("models", "conversations")
_DEVICES, _STEPS, _STANDS_AFTER = 8, 3600, 12
_STOP_TIMEOUT_S, _POLL_S = 30.0, 0.1

report: ContextVar[Callable[[str], None] | None] = ContextVar("report", default=None)
"""How to tell that a host begins: set by a front door, for a verb that only names it starts it too."""


def demo_home(scenario: str) -> EmbeddedHome:
    """Where the host of a scenario lives; nothing is made yet."""
    directory = data_directory() / "demo" / scenario
    return EmbeddedHome(
        directory=directory,
        engine_python=EmbeddedHome.default().engine_python,
        name=f"{PREFIX}{scenario}",
        environment={
            **nvml_standin.environment(_library_directory() / nvml_standin.LIBRARY, _scenario_file(directory)),
            "ROOST_DEVICE_LOCKS": str(directory / "devices"),
        },
    )


async def ensure_running(scenario: str, *, anew: bool = False) -> HostConfig:
    """The host of a scenario, which begins when its server is started or `anew`; raises UsageError for no scenario."""
    text = nvml_standin.scenario_text(scenario)
    home = demo_home(scenario)
    lifecycle.require_engine(home)
    nvml_standin.build(_library_directory())
    _share_installation(home)
    if not anew and await lifecycle.is_running(home):
        return await lifecycle.ensure_running(home)
    if (tell := report.get()) is not None:
        tell(f"{home.name} begins: {nvml_standin.scenarios()[scenario]} (simulated)")
    exercise = _exercise(text)
    if exercise is None:
        _play(home, text)
        return await lifecycle.ensure_running(home)
    # Devices are given to a job while nothing is on them; the scenario begins with the job at work.
    _play(home, nvml_standin.scenario_text("healthy"))
    host = await lifecycle.ensure_running(home)
    async with HostLink(host, actor=ACTOR) as link:
        await _end_jobs(link, ("exercise",))
        await link.call(StartJob(job_id=new_job_id("exercise"), spec=exercise, op_id=new_op_id()), timeout_s=60.0)
    _play(home, text)
    return host


async def stop_all() -> list[str]:
    """Stop every host of a scenario with all its jobs, the recorder included; the names of those that had anything at work."""
    stopped: list[str] = []
    for directory in sorted((data_directory() / "demo").glob("*/root/jobs")):
        home = demo_home(directory.parents[1].name)
        if not await lifecycle.is_running(home) and not _has_unfinished_jobs(directory):
            continue
        async with HostLink(await lifecycle.ensure_running(home), actor=ACTOR) as link:
            await _end_jobs(link)
        await lifecycle.stop(home)
        stopped.append(home.name)
    return stopped


def _exercise(text: str) -> ExerciseSpec | None:
    """The job of a scenario: on all devices, and within its hour for the rules to see a pace."""
    match nvml_standin.scenario_job(text):
        case None:
            return None
        case "steps":
            return ExerciseSpec(gpus=_DEVICES, steps=_STEPS, step_s=1.0)
        case "stands":
            return ExerciseSpec(gpus=_DEVICES, steps=_STEPS, step_s=1.0, stands_after=_STANDS_AFTER)


def _has_unfinished_jobs(jobs: Path) -> bool:
    return any(not any((job / end).exists() for end in ("exit.json", "lost.json")) for job in jobs.iterdir())


async def _end_jobs(link: HostLink, agents: Container[str] | None = None) -> None:
    """Stop the jobs, of these agents where they are named, and wait until they are over; raises ConnectionFailed for one that is not."""
    deadline = asyncio.get_running_loop().time() + _STOP_TIMEOUT_S
    while jobs := [job for job in await _live_jobs(link) if agents is None or job.agent in agents]:
        if asyncio.get_running_loop().time() > deadline:
            raise ConnectionFailed(f"{jobs[0].job_id} on {link.host.name} does not end", retryable=False)
        for job in jobs:
            if not isinstance(job.state, Stopping):
                await link.call(StopJob(job_id=job.job_id, op_id=new_op_id(), reason="the demo ends"), timeout_s=60.0)
        await asyncio.sleep(_POLL_S)


async def _live_jobs(link: HostLink) -> list[Job]:
    reply = await link.call(ListJobs())
    return [job for job in reply.jobs if not is_over(job.state)] if isinstance(reply, JobList) else []


def _library_directory() -> Path:
    return data_directory() / "demo" / ".library"


def _scenario_file(directory: Path) -> Path:
    return directory / "scenario.txt"


def _play(home: EmbeddedHome, text: str) -> None:
    """The time of a scenario begins when its file is written."""
    file = _scenario_file(home.directory)
    new = file.with_name(f".scenario.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def _share_installation(home: EmbeddedHome) -> None:
    home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _SHARED:
        with contextlib.suppress(FileExistsError):
            (home.root / name).symlink_to(EmbeddedHome.default().root / name, target_is_directory=True)
