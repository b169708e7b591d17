"""Operations on hosts that are allocations of Slurm: ask for one, say where it is, end it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncssh
import msgspec

from console.config.hosts import HostConfig, SlurmConfig
from console.errors import ConsoleError, UsageError
from console.link import slurm
from console.link.channel import bring_release
from console.link.session import connect
from console.operations import find_host, list_jobs, open_host
from console.state.allocation import Allocation, Ending, Pending, Running
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.jobs import is_over

LOOK_AGAIN_S = 3.0


class AllocationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would be submitted, or the allocation that is there already and is not asked for again."""

    host: str
    script: str
    there: Allocation | None


async def plan_allocation(name: str, *, actor: str) -> AllocationPlan:
    """The batch script for the host `name`; raises UsageError for a host that is none of Slurm, ConnectionFailed."""
    host, settings = await _slurm_host(name)
    async with _login(host) as connection:
        there = await slurm.find_allocation(connection, host)
    return AllocationPlan(host=name, script=slurm.batch_script(host, settings, actor), there=there)


async def start_allocation(plan: AllocationPlan) -> Allocation:
    """Submit what was planned, unless an allocation is there; raises ConsoleError with what sbatch says."""
    host, _ = await _slurm_host(plan.host)
    async with _login(host) as connection:
        there = await slurm.find_allocation(connection, host)
        if there is not None and not isinstance(there.state, Ending):
            return there
        await bring_release(connection, host)
        number = await slurm.submit(connection, host, plan.script)
        found = await slurm.find_allocation(connection, host)
    return found or Allocation(slurm_job=number, state=Pending(reason="submitted", starts_at=None))


async def read_allocation(name: str) -> Allocation | None:
    """Where the allocation of the host `name` is; None when the queue has none."""
    host, _ = await _slurm_host(name)
    async with _login(host) as connection:
        return await slurm.find_allocation(connection, host)


async def wait_for_allocation(name: str, *, timeout_s: float | None) -> Allocation:
    """Wait until the allocation runs; raises ConsoleError (timeout, or failed when it left the queue)."""
    host, _ = await _slurm_host(name)
    found: Allocation | None = None
    try:
        async with asyncio.timeout(timeout_s), _login(host) as connection:
            while True:
                found = await slurm.find_allocation(connection, host)
                if found is None or isinstance(found.state, Ending):
                    raise _left_the_queue(name)
                if isinstance(found.state, Running):
                    return found
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.TIMEOUT,
                message=f"the allocation of {name} waits in the queue after {timeout_s:g} s",
                hint="it keeps its place there",
                retryable=True,
                next_command=f"roost allocation show {name}",
            )
        ) from None


async def running_jobs(name: str, *, actor: str) -> list[str]:
    """The jobs that the end of a running allocation would stop."""
    async with open_host(name, actor=actor) as session:
        return [job.job_id for job in await list_jobs(session) if not is_over(job.state)]


async def end_allocation(name: str) -> Allocation | None:
    """End the allocation: its jobs are told to stop and may save, then the node is given back. What was ended, None when nothing was."""
    host, _ = await _slurm_host(name)
    async with _login(host) as connection:
        found = await slurm.find_allocation(connection, host)
        match found:
            case Allocation(slurm_job=number, state=Running()):
                await slurm.end(connection, host, number)
            case Allocation(slurm_job=number, state=Pending()):
                await slurm.withdraw(connection, host, number)
            case _:
                pass
        return found


@asynccontextmanager
async def _login(host: HostConfig) -> AsyncGenerator[asyncssh.SSHClientConnection, None]:
    connection = await connect(host)
    try:
        yield connection
    finally:
        connection.abort()


async def _slurm_host(name: str) -> tuple[HostConfig, SlurmConfig]:
    host = await find_host(name)
    if host.slurm is None:
        raise UsageError(
            f"{name} is reached by itself, not through an allocation of Slurm",
            hint=f"add [hosts.{name}.slurm] to roost.toml if its address is a login host of Slurm",
        )
    return host, host.slurm


def _left_the_queue(name: str) -> ConsoleError:
    return ConsoleError(
        ErrorInfo(
            code=ErrorCode.FAILED,
            message=f"the allocation of {name} left the queue before it ran",
            hint="its own words are in the newest allocation-*.log below the host's root",
            next_command=f"roost allocation start {name}",
        )
    )
