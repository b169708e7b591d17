"""The screen on a recorded session, in a terminal of a given size."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console.recording.clock import PlayClock
from console.recording.format import Recorded
from console.recording.reader import Recording, read_recording
from console.ui.app import RoostApp
from console.ui.recording import RecordedSession
from console.ui.replay import ReplayApp

RECORDINGS = Path(__file__).parents[1] / "recordings"
PATIENCE = 2000


class Shown:
    """A running screen: what it shows, and what was asked of the host."""

    def __init__(self, app: RoostApp, pilot: Pilot, session: RecordedSession | None) -> None:
        self.app = app
        self.pilot = pilot
        self.session = session

    @property
    def lines(self) -> list[str]:
        return ["".join(piece.text for piece in strip) for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the screen take in and draw what there is until `condition` holds; fails with the screen's text."""
        for _ in range(PATIENCE):
            self.app.refresh_now()
            await self.pilot.pause()
            if condition():
                return
        pytest.fail(f"never came true; the screen shows\n{self.text}")

    async def until_shown(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def send(self, *events) -> None:
        for event in events:
            await self.session.live.put(event)


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch) -> None:
    """What the developer's own screen remembers is nobody's business here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def embedded_run() -> list[Recorded]:
    return read_recording(RECORDINGS / "embedded_run.jsonl")


@pytest.fixture(scope="session")
def eight_gpus() -> list[Recorded]:
    return read_recording(RECORDINGS / "kimi_extraction.jsonl")


@asynccontextmanager
async def shown(
    records: list[Recorded], *, until: float, size: tuple[int, int], host: str = "embedded"
) -> AsyncIterator[Shown]:
    session = RecordedSession(records, until=until)

    @asynccontextmanager
    async def connect() -> AsyncIterator[RecordedSession]:
        yield session

    app = RoostApp(host, connect)
    async with app.run_test(size=size) as pilot:
        yield Shown(app, pilot, session)


@pytest.fixture
def show():
    return shown


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_move: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds
        self.on_move()


@asynccontextmanager
async def replayed(
    recording: Recording, *, at: float, size: tuple[int, int] = (120, 35), speed: float = 1.0
) -> AsyncIterator[tuple[Shown, Time]]:
    time = Time()
    play = PlayClock(at, duration_s=recording.duration_s, speed=speed, running=True, monotonic=time)

    def wake() -> None:
        play.on_change()

    time.on_move = wake
    app = ReplayApp(recording, play)
    async with app.run_test(size=size) as pilot:
        yield Shown(app, pilot, None), time


@pytest.fixture
def replay():
    return replayed
