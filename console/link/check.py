"""Looking at a host before anything of Roost is on it."""

import asyncio
import time
from pathlib import Path

import asyncssh
import msgspec

from console.config.hosts import HostConfig
from console.errors import ConnectionFailed
from console.link.deploy import BOOT_MARKER, program_command, starting_python
from console.link.session import connect, login_of
from console.state.host_check import REQUIRED, USEFUL, HostCheck, ProbeReport, judge

PROBE_TIMEOUT_S = 180.0
_MARK = BOOT_MARKER + b" report "


async def check_host(host: HostConfig) -> HostCheck:
    """Log in, look, judge; raises ConnectionFailed when not even a Python 3 is there."""
    connection = await connect(host)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            done = await connection.run(probe_command(host), encoding=None, stdin=asyncssh.DEVNULL)
            asked = time.monotonic()
            await connection.run("true", encoding=None, stdin=asyncssh.DEVNULL)
            latency_s = time.monotonic() - asked
    except (OSError, asyncssh.Error, TimeoutError) as error:
        raise ConnectionFailed(f"{host.name} was reached, but the check did not end: {error or 'no answer'}") from error
    finally:
        connection.abort()
    out, err = done.stdout, done.stderr
    assert isinstance(out, bytes) and isinstance(err, bytes), "no encoding was asked for"  # noqa: PT018
    report = next((line[len(_MARK) :] for line in out.splitlines() if line.startswith(_MARK)), None)
    if report is None:
        said = (err or out).decode(errors="replace").strip()[-300:]
        raise ConnectionFailed(
            f"no Python 3 could be run on {host.name} (exit status {done.exit_status}){': ' + said if said else ''}",
            hint="install python3 there, or name one as `python` of the host in roost.toml",
            retryable=False,
        )
    probe = msgspec.json.decode(report, type=ProbeReport)
    return judge(host.name, await login_of(host), latency_s, probe.machine.clock - time.time(), probe)


def probe_command(host: HostConfig) -> str:
    """The command line that looks."""
    parameters = {
        "root": host.root,
        "python": host.python,
        "packages": [*REQUIRED, *USEFUL],
        "marker": BOOT_MARKER.decode(),
    }
    return program_command(Path(__file__).with_name("probe.py"), parameters, starting_python(host))
