"""How long a console takes to its first true screen on a host with many finished jobs, beside the same console on a host with one.

`python bench/first_screen.py [JOBS]`: real jobs' directories, the embedded host over SSH, the real screen without a terminal.
True means: every job that the host has is a row of the screen's table, and it has been drawn.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from console import operations
from console.embedded import lifecycle
from console.embedded.locations import EmbeddedHome
from console.link.client import HostLink
from console.ui.app import RoostApp
from console.ui.session import ACTOR, LiveSession
from console.ui.widgets.jobs_table import JobsTable
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished
from remote.protocol.specs import MappingCopySpec

REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = REPOSITORY / "tests/golden/kimi-k2.5-vocabulary"
REPEATS = 3
TABLE_ROWS = 200
"""The table shows the newest 200; the state behind it has them all."""


def fill(root: Path, count: int) -> None:
    """A job that really ran, and `count - 1` more like it."""
    store = JobStore(root, REPOSITORY, sys.executable)
    spec = MappingCopySpec(source=str(GOLDEN), destination=str(root / "mapping"))
    store.start("first", spec, actor="bench", op_id="first")
    while not isinstance(store.get("first").state, Finished):
        time.sleep(0.05)
    first = store.directory("first")
    launch = msgspec.json.decode((first / "launch.json").read_bytes())
    for number in range(1, count):
        copy = first.with_name(f"finished-{number:05d}")
        shutil.copytree(first, copy)
        launch |= {"job_id": copy.name, "created_at": launch["created_at"] - 60}
        (copy / "launch.json").write_text(json.dumps(launch))


async def time_to_first_screen(home: EmbeddedHome, count: int) -> float:
    """Seconds from before the connection to a table with every job."""
    began = time.perf_counter()

    @asynccontextmanager
    async def connect() -> AsyncIterator[LiveSession]:
        async with HostLink(await lifecycle.ensure_running(home), actor=ACTOR) as session:
            yield LiveSession(session)

    app = RoostApp(operations.EMBEDDED, connect)
    async with app.run_test(size=(120, 35)) as pilot:
        table = app.query_one(JobsTable)
        while table.row_count != min(count, TABLE_ROWS):
            await pilot.pause(0.01)
            app.refresh_now()
        return time.perf_counter() - began


async def measure(directory: Path, count: int) -> list[float]:
    """The times of several consoles, the host's SSH server running already."""
    home = EmbeddedHome(directory=directory, engine_python=Path(sys.executable))
    fill(directory / "root", count)
    await lifecycle.ensure_running(home)
    try:
        return [await time_to_first_screen(home, count) for _ in range(REPEATS)]
    finally:
        await lifecycle.stop(home)


def main(count: int) -> None:
    """Print both times and their ratio."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), scratch)
        one = min(asyncio.run(measure(Path(scratch) / "one", 1)))
        full = min(asyncio.run(measure(Path(scratch) / "full", count)))
    print(f"first true screen, best of {REPEATS}")
    print(f"  a host with one finished job{one:6.2f} s")
    print(f"  a host with {count} of them   {full:6.2f} s   {full / one:.2f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
