"""Making an environment of Roost's own on a host that has no Python with what the host side needs."""

import asyncio
import importlib.metadata
import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import asyncssh
import msgspec

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed, ConsoleError
from console.link.deploy import BOOT_MARKER, program_command, starting_python
from console.link.session import connect
from console.state.host_check import HostCheck
from remote.protocol.errors import ErrorCode, ErrorInfo

BUILD_TIMEOUT_S = 1800.0


class EnvironmentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What `roost hosts prepare` will do: with which Python, which packages, and whose other packages it will see."""

    host: str
    environment: str
    python: str
    requirements: list[str]
    borrow_from: str | None

    def commands(self) -> list[str]:
        """The commands, as a person would type them."""
        made = [
            f"{self.python} -m venv {self.environment}",
            f"{self.environment}/bin/python -m pip install {' '.join(self.requirements)}",
        ]
        seen = f"(and it sees the packages of {self.borrow_from}, which has torch)"
        return made if self.borrow_from is None else [*made, seen]


def plan_environment(check: HostCheck) -> EnvironmentPlan:
    """The environment for a checked host; raises ConsoleError (precondition) when no Python there is new enough.

    A Python that has torch is preferred, so that training finds it; its packages stay where they are.
    """
    able = [python for python in check.probe.pythons if "Python 3.10 or newer" not in python.lacks() and python.version]
    if not able:
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.PRECONDITION,
                message=f"{check.host} has no Python 3.10 or newer to make an environment with",
                hint="install one there (`apt install python3 python3-venv`, or uv, or conda)",
                next_command=f"roost hosts check {check.host}",
            )
        )
    best = max(able, key=lambda python: python.packages.get("torch") is not None)
    return EnvironmentPlan(
        host=check.host,
        environment=f"{check.probe.root.path}/env",
        python=best.path,
        requirements=host_requirements(),
        borrow_from=best.path if best.packages.get("torch") is not None else None,
    )


def host_requirements() -> list[str]:
    """The packages of the host side, as this installation's own metadata names them (the extra `host`)."""
    declared = importlib.metadata.requires("roost") or []
    return sorted(line.split(";")[0].strip() for line in declared if 'extra == "host"' in line.replace("'", '"'))


async def build_environment(host: HostConfig, plan: EnvironmentPlan, report: Callable[[str], None]) -> bool:
    """Carry out the plan, telling the host's output; False when the environment was there. Raises ConnectionFailed, ConsoleError."""
    connection = await connect(host)
    try:
        async with asyncio.timeout(BUILD_TIMEOUT_S):
            borrow = None if plan.borrow_from is None else await _packages_of(connection, plan.borrow_from)
            parameters = {
                "root": host.root,
                "python": plan.python,
                "requirements": plan.requirements,
                "borrow": borrow,
                "marker": BOOT_MARKER.decode(),
            }
            command = program_command(Path(__file__).with_name("env_builder.py"), parameters, starting_python(host))
            process = await connection.create_process(command, encoding=None, stderr=asyncssh.STDOUT)
            return await _follow(process, plan, report)
    except (OSError, asyncssh.Error, TimeoutError) as error:
        raise ConnectionFailed(
            f"the environment on {host.name} was not finished: {error or 'it took too long'}",
            hint="nothing half-made is used; run it again",
        ) from error
    finally:
        connection.abort()


async def _packages_of(connection: asyncssh.SSHClientConnection, python: str) -> str:
    done = await connection.run(
        f"{python} -c 'import sysconfig;print(sysconfig.get_path(\"purelib\"))'", encoding=None, check=True
    )
    assert isinstance(done.stdout, bytes), "no encoding was asked for"
    return done.stdout.decode().strip()


async def _follow(
    process: "asyncssh.SSHClientProcess[bytes]", plan: EnvironmentPlan, report: Callable[[str], None]
) -> bool:
    async for line in process.stdout:
        if not line.startswith(BOOT_MARKER):
            if text := line.decode(errors="replace").strip():
                report(text)
            continue
        word, _, details = line[len(BOOT_MARKER) :].decode().strip().partition(" ")
        told = json.loads(details)
        match word:
            case "made" | "there":
                return word == "made"
            case "need-wheels":
                report("the host cannot download packages: they are brought over the connection")
                process.stdin.write(await _wheels(plan.requirements, told["python"], told["machine"]))
            case _:
                raise ConsoleError(
                    ErrorInfo(
                        code=ErrorCode.FAILED,
                        message=f"the environment on {plan.host} could not be made: {told['message']}",
                        hint="its output above says more; nothing half-made is left",
                    )
                )
    raise ConnectionFailed(f"{plan.host} ended the preparation without a word", hint="run it again")


async def _wheels(requirements: list[str], python: str, machine: str) -> bytes:
    """16 digits of size and a tar of wheels for that Python; size 0 when they cannot be had here either."""
    with tempfile.TemporaryDirectory() as directory:
        platforms = [f"--platform=manylinux{tag}_{machine}" for tag in ("_2_28", "_2_17", "2014")]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", directory]
        pip = await asyncio.create_subprocess_exec(
            *command, f"--python-version={python}", *platforms, *requirements, stdin=asyncio.subprocess.DEVNULL
        )
        if await pip.wait() != 0:
            return b"%016d" % 0
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for wheel in sorted(Path(directory).iterdir()):
                archive.add(wheel, wheel.name)
    return b"%016d" % len(packed.getvalue()) + packed.getvalue()
