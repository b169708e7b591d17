"""A host that is an allocation of Slurm: submitted, found and reached through the login host.

The allocation's batch script is the keeper of `remote/jobs/keeper.py`; every link is a step of it (`srun --overlap`). Slurm's own queue
is asked where the allocation is, so nothing about it is kept here. `--dependency=singleton` lets no two allocations of one root run at a time.
"""

import hashlib
import shlex
from pathlib import Path

import asyncssh

from console.config.hosts import HostConfig, SlurmConfig
from console.errors import ConnectionFailed, ConsoleError
from console.link.deploy import bootstrap_command, program_command, release
from console.link.engine_http import Reader, Writer
from console.state.allocation import QUEUE_FORMAT, Allocation, Ending, Pending, Running, read_queue
from remote.protocol.codec import KEPT_VARIABLE
from remote.protocol.errors import ErrorCode, ErrorInfo


def allocation_name(root: str) -> str:
    """What the allocations of a root are called in the queue."""
    return f"roost-{hashlib.sha256(root.encode()).hexdigest()[:8]}"


def batch_script(host: HostConfig, slurm: SlurmConfig, actor: str) -> str:
    """The script that `sbatch` gets: options that Roost needs, those of roost.toml, and the keeper."""
    options = [
        f"--job-name={allocation_name(host.root)}",
        "--dependency=singleton",
        "--nodes=1",
        "--ntasks=1",
        f"--signal=B:TERM@{slurm.notice_s}",
        "--no-requeue",
        "--output=allocation-%j.log",
        *([] if slurm.partition is None else [f"--partition={slurm.partition}"]),
        *([] if slurm.gpus is None else [f"--gres=gpu:{slurm.gpus}"]),
        *([] if slurm.time_limit is None else [f"--time={slurm.time_limit}"]),
        *slurm.options,
    ]
    directives = "".join(f"#SBATCH {option}\n" for option in options)
    return f"#!/bin/sh\n{directives}{bootstrap_command(host, release(), 'keep', actor=actor)}\n"


def step_command(slurm_job: int, command: str) -> str:
    """The command line that runs `command` as a step of the allocation, on the same standard input and output."""
    srun = f"srun --jobid={slurm_job} --overlap --nodes=1 --ntasks=1 --mem=0 --mpi=none --input=all"
    return f"exec {srun} env {KEPT_VARIABLE}=1 sh -c {shlex.quote(command)}"


async def find_allocation(connection: asyncssh.SSHClientConnection, host: HostConfig) -> Allocation | None:
    """The allocation of this host's root, None when the queue has none; raises ConnectionFailed where there is no queue to ask."""
    command = (
        f"env SLURM_TIME_FORMAT=%s squeue --me --noheader --name={allocation_name(host.root)} --format='{QUEUE_FORMAT}'"
    )
    text = await _run(connection, host, command)
    try:
        return read_queue(text)
    except ValueError as error:
        raise ConnectionFailed(f"squeue on {host.name} says what is not understood: {text[:200]!r}") from error


async def require_running(connection: asyncssh.SSHClientConnection, host: HostConfig) -> int:
    """The Slurm job to be a step of; raises ConnectionFailed that says where the allocation is instead."""
    found = await find_allocation(connection, host)
    if found is None:
        raise ConnectionFailed(
            f"{host.name} has no allocation of Slurm now",
            hint=f"`roost allocation start {host.name}` asks for one; what the last one left is kept",
            retryable=False,
        )
    match found.state:
        case Running():
            return found.slurm_job
        case Pending(reason=reason):
            raise ConnectionFailed(
                f"{host.name} waits for its node: Slurm job {found.slurm_job} is in the queue{reason and f' ({reason})'}",
                hint=f"`roost allocation show {host.name}` tells when it may start",
            )
        case Ending(word=word):
            raise ConnectionFailed(
                f"the allocation of {host.name} is ending (Slurm job {found.slurm_job}, {word.lower()})",
                hint=f"`roost allocation start {host.name}` asks for the next one",
                retryable=False,
            )


async def open_port(connection: asyncssh.SSHClientConnection, slurm_job: int, port: int) -> tuple[Reader, Writer]:
    """A stream to a loopback port of the allocation's node, by a step that relays it; raises ConnectionFailed."""
    relay = program_command(Path(__file__).with_name("port_relay.py"), {"port": port}, "python3")
    try:
        process = await connection.create_process(step_command(slurm_job, relay), encoding=None)
    except (OSError, asyncssh.Error) as error:
        raise ConnectionFailed(f"port {port} of the node cannot be reached: {error}", hint="try again") from error
    return process.stdout, process.stdin


async def submit(connection: asyncssh.SSHClientConnection, host: HostConfig, script: str) -> int:
    """Put the allocation into the queue; its number. Raises ConsoleError with what sbatch says."""
    text = await _run(connection, host, f"cd {_for_shell(host.root)} && sbatch --parsable", given=script)
    return int(text.split(";")[0])


async def end(connection: asyncssh.SSHClientConnection, host: HostConfig, slurm_job: int) -> None:
    """Tell the keeper to end everything and then the allocation: what runs hears SIGTERM first, as it does when time is over."""
    await _run(connection, host, f"scancel --batch --signal=TERM {slurm_job} || scancel {slurm_job}")


async def withdraw(connection: asyncssh.SSHClientConnection, host: HostConfig, slurm_job: int) -> None:
    """Take an allocation that has not begun out of the queue."""
    await _run(connection, host, f"scancel {slurm_job}")


def _for_shell(path: str) -> str:
    """`path` as a word of a shell that still expands its `~`."""
    home, slash, rest = path.partition("/")
    return f"{home}{slash}{shlex.quote(rest) if rest else ''}" if home.startswith("~") else shlex.quote(path)


async def _run(
    connection: asyncssh.SSHClientConnection, host: HostConfig, command: str, *, given: str | None = None
) -> str:
    done = await connection.run(command, encoding="utf-8", errors="replace", input=given or "")
    said = str(done.stderr or "").strip()
    if done.exit_status == 0:
        return str(done.stdout or "")
    tool = next(word for word in ("sbatch", "scancel", "squeue") if word in command)
    if "not found" in said or done.exit_status == 127:
        raise ConnectionFailed(
            f"{host.name} has no {tool}: {said[-200:]}",
            hint="[hosts.NAME.slurm] is for a login host of Slurm whose commands are on the PATH over SSH",
            retryable=False,
        )
    raise ConsoleError(
        ErrorInfo(
            code=ErrorCode.FAILED,
            message=f"{tool} on {host.name} refused: {said[-500:] or f'exit status {done.exit_status}'}",
            hint="mend [hosts.NAME.slurm] in roost.toml; `roost allocation start --dry-run` shows what is submitted",
        )
    )
