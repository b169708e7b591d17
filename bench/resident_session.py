"""How long a verb takes through a host's background session, beside the same verb without it and beside Python's start alone.

`python bench/resident_session.py [VERBS]`: a real SSH server on loopback, once as it is and once behind a proxy that holds every byte
back for half of a round trip of 40 ms. Whole processes are timed; `roost --version` is Python's start with everything that a verb loads.
"""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import asyncssh
import msgspec

from console.config.hosts import HostConfig
from console.embedded import lifecycle
from console.embedded.locations import EmbeddedHome
from console.link import resident
from console.link.host_keys import Endpoint, remember

REPOSITORY = Path(__file__).resolve().parents[1]
ROUND_TRIP_S = 0.04
VERBS = 15
PAUSE_S = 2.0
"""Between verbs, as between the thoughts of whoever types them; the next link gets ready meanwhile."""


class Far:
    """A proxy that makes a host as far away as a round trip says."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self._is_up = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._is_up.wait()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await server.serve_forever()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(ROUND_TRIP_S)  # of TCP's own handshake
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(_hold_back(reader, there_writer), _hold_back(there_reader, writer))


async def _hold_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    while block := await reader.read(1 << 16):
        loop.call_later(ROUND_TRIP_S / 2, writer.write, block)
    loop.call_later(ROUND_TRIP_S / 2, writer.close)


def seconds(environment: dict[str, str], *words: str) -> float:
    """How long a `roost` process takes."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "console.cli", *words], env=environment, check=True, capture_output=True, cwd=REPOSITORY
    )
    return time.perf_counter() - began


def write_hosts(config: Path, hosts: dict[str, HostConfig]) -> None:
    """The hosts in roost.toml."""
    lines: list[str] = []
    for name, host in hosts.items():
        lines.append(f"[hosts.{name}]")
        values = msgspec.structs.replace(host, name=name)
        lines += [
            f"{key} = {msgspec.json.encode(value).decode()}"
            for key, value in msgspec.to_builtins(values).items()
            if value is not None and key != "name"
        ]
    (config / "roost.toml").write_text("\n".join(lines) + "\n")


def row(name: str, taken: list[float], starts: list[float]) -> str:
    """The median, and how much more it and the least are than Python's start in the same rounds."""
    median, least = statistics.median(taken), min(taken)
    beside = f"{median - statistics.median(starts):6.3f} s beside the start (least {least - min(starts):.3f} s)"
    return f"{name:<44} {median:6.3f} s   {beside}"


def wait_for_session(runtime: Path, count: int) -> None:
    """Until so many sessions are there, and each has a link that is ready."""
    while len(list(runtime.glob("roost/*.sock"))) < count:
        time.sleep(0.05)
    time.sleep(2.0)


def main() -> None:
    """Print the table."""
    verbs = int(sys.argv[1]) if len(sys.argv) > 1 else VERBS
    directory = Path(tempfile.mkdtemp(prefix="roost-bench-"))
    runtime, config = directory / "run", directory / "config"
    runtime.mkdir(mode=0o700)
    os.environ |= {"XDG_CONFIG_HOME": str(config), "XDG_DATA_HOME": str(directory / "data")}
    (config / "roost").mkdir(parents=True)
    home = EmbeddedHome(directory=directory / "embedded", engine_python=Path(sys.executable))
    near = asyncio.run(lifecycle.ensure_running(home))
    far = Far(near.port or 0)
    address = lifecycle._read_address(home)  # noqa: SLF001 - the key that the proxy shows is the server's
    assert address is not None
    remember(Endpoint("127.0.0.1", far.port), asyncssh.import_public_key(address.host_key))
    write_hosts(config / "roost", {"near": near, "far": msgspec.structs.replace(near, port=far.port)})
    cold = {key: value for key, value in os.environ.items() if key != "XDG_RUNTIME_DIR"} | {"OMP_NUM_THREADS": "1"}
    warm = cold | {"XDG_RUNTIME_DIR": str(runtime)}
    try:
        for count, name in enumerate(("near", "far"), 1):
            words = ("jobs", "--host", name, "--json")
            seconds(warm, *words)
            wait_for_session(runtime, count)
            starts, without, within = [], [], []
            for _ in range(verbs):  # in turn, for other work on the machine comes and goes
                within.append(seconds(warm, *words))
                starts.append(seconds(cold, "--version"))
                without.append(seconds(cold, *words))
                time.sleep(PAUSE_S)
            time.sleep(resident.TRUST_S)
            later = [seconds(warm, *words)]
            print(f"{name}: {'Python and what a verb loads':<{42 - len(name)}} {statistics.median(starts):6.3f} s")
            print(row(f"{name}: jobs, without a session", without, starts))
            print(row(f"{name}: jobs, through a session", within, starts))
            print(row(f"{name}: the first after {resident.TRUST_S:.0f} s looks at the key", later, starts))
    finally:
        asyncio.run(lifecycle.stop(home))
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
