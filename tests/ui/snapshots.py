"""What the screen looks like, as text that a person can review: `python -m tests.ui.snapshots` writes tests/snapshots anew.

A file for each scene and size: the screen's text, and below it for each theme the style of every cell, run by run (`a12 b3`: twelve
cells of style a, then three of b), with what each letter stands for. The text is there once because no theme changes it. As SVG files
the same would be 50 times as large, and differ with the version of the library that writes them.
"""

import asyncio
import os
import string
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.style import Style
from textual.pilot import Pilot
from textual.strip import Strip

from console.config.screen_memory import Recalled, ScreenMemory
from console.recording.clock import PlayClock
from console.recording.format import LinkLost, Recorded
from console.recording.reader import read_recording
from console.ui.app import RoostApp
from console.ui.recording import RecordedSession
from console.ui.session import HostSession
from remote.protocol.frames import JobChanged, LogData, ProgressMade, Telemetry
from remote.protocol.requests import JobList

TESTS = Path(__file__).parents[1]
PLACE = TESTS / "snapshots"
SIZES = ((80, 24), (120, 35), (200, 50))
THEMES = ("roost-dark", "roost-light", "blue-orange-dark")
_ROUNDS = 400
_LETTERS = string.ascii_letters + string.digits


class Scene(NamedTuple):
    """A recording up to `until` seconds, and after `keys` what has to be on the screen before it is looked at."""

    name: str
    recording: str
    until: float
    shows: str
    keys: tuple[str, ...] = ()


SCENES = (
    Scene("healthy", "embedded_run", 180.0, "step 225/400  loss"),
    Scene("disconnected", "kimi_extraction", 205.0, "link lost 5 s ago"),
    Scene("gpu_lost", "kimi_extraction", 290.0, "fell off the bus"),
    Scene("empty", "embedded_run", 6.0, "no run yet"),
    Scene("plots", "embedded_run", 180.0, "or the pointer read values", ("4",)),
)


def records_of(scene: Scene) -> list[Recorded]:
    """What was recorded, with what the scene is about."""
    records = read_recording(TESTS / "recordings" / f"{scene.recording}.jsonl")
    match scene.name:
        case "disconnected":
            lost = Recorded(at=200.0, what=LinkLost(reason="reset by peer", retry_in_s=8.0))
            return [*(record for record in records if record.at < lost.at), lost]
        case "gpu_lost":
            return [_with_lost_gpu(record) for record in records]
        case "empty":
            of_jobs = (JobChanged, ProgressMade, LogData)
            kept = [record for record in records if not isinstance(record.what, of_jobs)]
            return [
                msgspec.structs.replace(record, what=JobList(jobs=[])) if isinstance(record.what, JobList) else record
                for record in kept
            ]
        case _:
            return records


def _with_lost_gpu(record: Recorded) -> Recorded:
    """From four minutes on GPU 5 does not answer."""
    if not isinstance(record.what, Telemetry) or record.at < 240.0:
        return record
    gpus = [
        msgspec.structs.replace(gpu, error="fell off the bus (XID 79)", gpu_utilization=None)
        if gpu.gpu_index == 5
        else gpu
        for gpu in record.what.sample.gpus
    ]
    return msgspec.structs.replace(
        record, what=Telemetry(sample=msgspec.structs.replace(record.what.sample, gpus=gpus))
    )


class FrozenApp(RoostApp):
    """The screen at a moment of a recording, at which it stays."""

    def __init__(self, scene: Scene) -> None:
        self._play = PlayClock(scene.until, duration_s=scene.until, speed=1.0, running=False)
        session = RecordedSession(records_of(scene), clock=self._play)

        @asynccontextmanager
        async def connect() -> AsyncIterator[RecordedSession]:
            yield session

        host = "embedded" if scene.recording == "embedded_run" else "rtx-lab"
        super().__init__(host, connect, recalled=Recalled(ScreenMemory()))

    def clock(self) -> float:
        """The moment."""
        return self._play.now()

    def stamp(self, session: HostSession) -> float:
        """When what was played last has happened."""
        return session.stamp if isinstance(session, RecordedSession) else self.clock()


def strips(app: RoostApp) -> list[Strip]:
    """Every line as it is composed, before a terminal's abilities count."""
    return app.screen._compositor.render_strips()


def text_of(app: RoostApp) -> list[str]:
    """The screen's lines."""
    return ["".join(piece.text for piece in strip).rstrip() for strip in strips(app)]


async def settle(app: RoostApp, pilot: Pilot[int], shows: str) -> None:
    """Wait until `shows` is there and three looks in a row are the same; raises AssertionError with what is there instead."""
    same, before = 0, None
    for _ in range(_ROUNDS):
        app.refresh_now()
        await pilot.pause()
        now = [str(strip) for strip in strips(app)]
        same = same + 1 if now == before and any(shows in line for line in text_of(app)) else 0
        if same == 3:
            return
        before = now
    raise AssertionError(f"never shows {shows!r} and stands still:\n" + "\n".join(text_of(app)))


async def snapshot(scene: Scene, size: tuple[int, int]) -> str:
    """The scene in a terminal of `size`, in every theme."""
    app = FrozenApp(scene)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot, next(iter(scene.shows.splitlines())) if not scene.keys else "q Quit")
        for key in scene.keys:
            await pilot.press(key)
        text: list[str] | None = None
        parts: list[str] = []
        for theme in THEMES:
            app.theme = theme
            app.clear_notifications()
            await settle(app, pilot, scene.shows)
            assert text in (None, text_of(app)), f"{theme} changes the text"
            text = text_of(app)
            parts += ["", f"--- {theme}", *_styles(strips(app))]
        return "\n".join([*(text or []), *parts]) + "\n"


def _styles(lines: list[Strip]) -> list[str]:
    letters: dict[str, str] = {}
    rows: list[str] = []
    for strip in lines:
        cells = ((_words(piece.style), piece.cell_length) for piece in strip)
        runs = [
            (words, sum(length for _, length in group)) for words, group in groupby(cells, key=lambda cell: cell[0])
        ]
        for words, _ in runs:
            letters.setdefault(words, _LETTERS[len(letters)])
        rows.append(" ".join(f"{letters[words]}{length}" for words, length in runs))
    return [*(f"{letter} {words}" for words, letter in letters.items()), *rows]


def _words(style: Style | None) -> str:
    """Colours and attributes as Rich writes them."""
    return (
        "none"
        if style is None
        else str(
            Style(
                color=style.color,
                bgcolor=style.bgcolor,
                bold=style.bold or None,
                dim=style.dim or None,
                reverse=style.reverse or None,
                underline=style.underline or None,
                conceal=style.conceal or None,
            )
        )
    )


def path_of(scene: Scene, size: tuple[int, int]) -> Path:
    """Where a snapshot lies."""
    return PLACE / f"{scene.name}-{size[0]}x{size[1]}.txt"


def main() -> None:
    """Write what is different, and say so: whether it is meant is for a person to see in the difference."""
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()
    os.environ.pop("NO_COLOR", None)
    PLACE.mkdir(exist_ok=True)
    wanted = {path_of(scene, size): (scene, size) for scene in SCENES for size in SIZES}
    for stale in sorted(set(PLACE.glob("*.txt")) - set(wanted)):
        stale.unlink()
        sys.stdout.write(f"removed {stale.name}\n")
    for path, (scene, size) in wanted.items():
        found = asyncio.run(snapshot(scene, size))
        if not path.exists() or path.read_text(encoding="utf-8") != found:
            path.write_text(found, encoding="utf-8")
            sys.stdout.write(f"wrote {path.name}\n")
    sys.stdout.write("look at what changed before you commit it: git diff tests/snapshots\n")


if __name__ == "__main__":
    main()
