"""A screen, a script and an agent on the same job: one effect, and one clear word to whoever came too late."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from console import operations
from console.config.hosts import HostConfig
from console.embedded.locations import EmbeddedHome
from console.errors import HostError
from console.link.client import HostLink
from console.ui.app import RoostApp
from console.ui.screens.dialogs import Confirm, Notice
from console.ui.session import ACTOR, LiveSession
from remote.protocol.errors import ErrorCode
from remote.protocol.jobs import Finished
from tests.jobs.workshop import Workshop, end_everything_below

COUNTS_ITS_STOPS = """
import signal, time
def on_stop(*_):
    with open("stops", "a") as file:
        file.write("x")
    time.sleep(0.5)
    raise SystemExit(143)
signal.signal(signal.SIGTERM, on_stop)
print("at work", flush=True)
time.sleep(600)
"""


@pytest.fixture
def shop(embedded: HostConfig) -> Iterator[Workshop]:
    """Small programs as jobs of the embedded host."""
    yield Workshop(Path(embedded.root))
    end_everything_below(Path(embedded.root))


def roost(*arguments: str) -> tuple[int, dict, str]:
    done = subprocess.run(
        [sys.executable, "-m", "console.cli", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def same_engine(home: EmbeddedHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes find the embedded host where the tests' fixture has it, with the tests' own interpreter."""
    (home.directory / "engine").symlink_to(Path(sys.executable).parent.parent)


async def test_one_stop_takes_effect_and_the_others_are_told_whose_it_was(
    embedded: HostConfig, shop: Workshop, same_engine: None
) -> None:
    shop.start("shared", COUNTS_ITS_STOPS)
    seen = shop.until("shared", lambda job: job.last_line == "at work")

    @asynccontextmanager
    async def connect() -> AsyncIterator[LiveSession]:
        async with HostLink(embedded, actor=ACTOR) as session:
            yield LiveSession(session)

    app = RoostApp(operations.EMBEDDED, connect)
    async with app.run_test(size=(120, 35)) as pilot, HostLink(embedded, actor="agent") as agent:
        await until(pilot, app, lambda: app.shown_job() is not None)
        await pilot.press("s")
        await until(pilot, app, lambda: isinstance(app.screen, Confirm))

        await operations.stop_job(agent, "shared", reason="enough", expected_revision=seen.revision)

        code, document, error = roost("stop", "shared", "--confirm", "shared", "--revision", str(seen.revision))
        assert (code, document["error"]["code"]) == (5, "conflict")
        assert "agent asked it to stop (enough)" in error

        await pilot.press("y")
        await until(pilot, app, lambda: isinstance(app.screen, Notice))
        shown = "\n".join("".join(piece.text for piece in strip) for strip in app.screen._compositor.render_strips())
        assert "agent asked it to stop" in shown

        with pytest.raises(HostError) as refused:
            await operations.stop_job(agent, "shared", reason="again", expected_revision=seen.revision)
        assert refused.value.info.code == ErrorCode.CONFLICT
    state = shop.until("shared", lambda job: isinstance(job.state, Finished)).state
    assert state.reason == "stopped by agent: enough"
    assert (shop.store.directory("shared") / "stops").read_text() == "x"


async def until(pilot, app: RoostApp, condition) -> None:
    for _ in range(1000):
        app.refresh_now()
        await pilot.pause(0.01)
        if condition():
            return
    pytest.fail("waited in vain for the screen")


async def test_a_stop_without_a_revision_joins_the_one_under_way(embedded: HostConfig, shop: Workshop) -> None:
    shop.start("shared", COUNTS_ITS_STOPS)
    shop.until("shared", lambda job: job.last_line == "at work")
    async with HostLink(embedded, actor="ann") as ann, HostLink(embedded, actor="ben") as ben:
        await operations.stop_job(ann, "shared", reason="first")
        await operations.stop_job(ben, "shared", reason="second")
    state = shop.until("shared", lambda job: isinstance(job.state, Finished)).state
    assert state.reason == "stopped by ann: first"
    assert (shop.store.directory("shared") / "stops").read_text() == "x"


async def test_a_name_that_no_job_can_have_is_a_usage_error(embedded: HostConfig, same_engine: None) -> None:
    for verb in ("status", "logs", "wait"):
        code, document, _ = roost(verb, "../escape")
        assert (code, document["error"]["code"]) == (2, "usage"), verb
