"""Render the screenshots of the documentation from recorded sessions: `python docs/screenshots.py`, or `make screenshots`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from textual.pilot import Pilot

from console.recording.reader import read_recording
from console.ui.app import RoostApp
from console.ui.recording import RecordedSession

HERE = Path(__file__).parent
RECORDINGS = HERE.parent / "tests/recordings"
SETTLE_ROUNDS = 12
"""Drains and redraws until everything that was recorded is on the screen, the log included."""


class Shot(NamedTuple):
    """A picture: the recording up to `until` seconds, in a terminal of `size`, after `keys`."""

    name: str
    recording: str
    until: float
    size: tuple[int, int]
    host: str
    theme: str = "roost-dark"
    keys: tuple[str, ...] = ()


SHOTS = (
    Shot("training-80x24", "embedded_run", 180.0, (80, 24), "embedded"),
    Shot("training-160x45", "embedded_run", 180.0, (160, 45), "embedded"),
    Shot("evaluation-light-120x35", "embedded_run", 330.0, (120, 35), "embedded", theme="roost-light"),
    Shot("verdict-120x35", "embedded_run", 510.0, (120, 35), "embedded", keys=("v",)),
    Shot("plan-80x24", "embedded_run", 0.2, (80, 24), "embedded", keys=("r", "enter")),
    Shot("eight-gpus-80x24", "kimi_extraction", 295.0, (80, 24), "rtx-lab"),
    Shot("eight-gpus-160x45", "kimi_extraction", 295.0, (160, 45), "rtx-lab"),
)


async def take(shot: Shot) -> str:
    """The picture as SVG."""
    session = RecordedSession(read_recording(RECORDINGS / f"{shot.recording}.jsonl"), until=shot.until)

    @asynccontextmanager
    async def connect() -> AsyncIterator[RecordedSession]:
        yield session

    app = RoostApp(shot.host, connect)
    async with app.run_test(size=shot.size) as pilot:
        app.theme = shot.theme
        await settle(app, pilot)
        app.clear_notifications()
        for key in shot.keys:
            await pilot.press(key)
            await settle(app, pilot)
        app.clear_notifications()
        await pilot.pause()
        return app.export_screenshot(title=f"roost --host {shot.host}")


async def settle(app: RoostApp, pilot: Pilot[int]) -> None:
    """Wait until what was sent is drawn."""
    for _ in range(SETTLE_ROUNDS):
        await pilot.pause(0.1)
        app.refresh_now()
        await pilot.pause()


def main() -> None:
    """Write every picture."""
    target = HERE / "screenshots"
    target.mkdir(exist_ok=True)
    for shot in SHOTS:
        (target / f"{shot.name}.svg").write_text(asyncio.run(take(shot)), encoding="utf-8")
        print(f"docs/screenshots/{shot.name}.svg")


if __name__ == "__main__":
    main()
