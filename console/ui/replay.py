"""The screen on a recording: the same widgets, a clock that stands, runs and jumps, and nothing that can be changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.binding import Binding

from console.config.screen_memory import ScreenMemory, recall
from console.recording.clock import PlayClock
from console.recording.reader import Recording, contents, torn_words
from console.state.moments import format_clock
from console.state.units import format_duration
from console.ui.app import RoostApp
from console.ui.keymap import REPLAY_ACTIONS, bindings
from console.ui.recording import RecordedSession
from console.ui.session import HostSession
from console.ui.start import run_guarded

_STEP_S = 30.0
_LEAP_S = 600.0


class ReplayApp(RoostApp):
    """The console on a recording."""

    BINDINGS = [*bindings(REPLAY_ACTIONS), Binding("ctrl+c", "leave", show=False, priority=True)]
    actions = REPLAY_ACTIONS

    def __init__(self, recording: Recording, play: PlayClock) -> None:
        # The colours are a person's; pages and hosts are those of the recording.
        recalled = recall()
        memory = ScreenMemory(theme=recalled.memory.theme)
        super().__init__(recording.host, self._connect_recording, recalled=recalled._replace(memory=memory))
        self._recording = recording
        self._play = play
        self._began_at = contents(recording).began_at

    @asynccontextmanager
    async def _connect_recording(self) -> AsyncIterator[HostSession]:
        yield RecordedSession(self._recording.records, clock=self._play)

    def on_mount(self) -> None:
        """Say what a killed recorder has left out; Textual calls what the base class does by itself."""
        if self._recording.torn:
            self.notify(torn_words(self._recording), severity="warning", markup=False)

    @property
    def nothing_yet(self) -> str:
        """A replay starts nothing."""
        return "Nothing had been run yet at this moment of the recording; . goes on 30 seconds."

    def clock(self) -> float:
        """Seconds of the recording."""
        return self._play.now()

    def stamp(self, session: HostSession) -> float:
        """When what was played last has happened."""
        return session.stamp if isinstance(session, RecordedSession) else self.clock()

    @property
    def replay_words(self) -> str:
        """The recorded time, how far it is, and how it goes on."""
        now = self._play.now()
        clock = "" if self._began_at is None else f" {format_clock(self._began_at + now)} UTC"
        if now >= self._play.duration_s:
            pace = "at its end"
        elif self._play.running:
            pace = f"▶ {self._play.speed:g}x"
        else:
            pace = "‖ paused"
        return f"REPLAY{clock} {format_duration(now)}/{format_duration(self._play.duration_s)} {pace}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What would change something is there to say that it cannot."""
        return True if action in ("run", "stop", "approvals") else super().check_action(action, parameters)

    def action_run(self) -> None:
        """Nothing is started in a replay."""
        self.notify("This is a replay: nothing can be started in it.", severity="warning")

    def action_stop(self) -> None:
        """Nothing is stopped in a replay."""
        self.notify("This is a replay: what it shows is over, nothing can be stopped.", severity="warning")

    def action_approvals(self) -> None:
        """Nothing waits in a replay."""
        self.notify("This is a replay: nothing waits for an answer in it.", severity="warning")

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self._play.toggle()
        self.render_state()

    def action_faster(self) -> None:
        """The next speed."""
        self._play.speed_up(1)
        self.render_state()

    def action_slower(self) -> None:
        """The speed before."""
        self._play.speed_up(-1)
        self.render_state()

    def action_forward(self) -> None:
        """A step ahead."""
        self._go(_STEP_S)

    def action_back(self) -> None:
        """A step back."""
        self._go(-_STEP_S)

    def action_leap_forward(self) -> None:
        """Far ahead."""
        self._go(_LEAP_S)

    def action_leap_back(self) -> None:
        """Far back."""
        self._go(-_LEAP_S)

    def _go(self, seconds: float) -> None:
        """Ahead, everything in between is taken in; back, everything is played anew from the beginning."""
        self._play.set(self._play.now() + seconds)
        if seconds < 0:
            self.feed.begin_anew()
        self.render_state()


def run_replay(recording: Recording, *, speed: float, at: float) -> int:
    """Open the screen on a recording; returns the exit code when it is closed."""
    play = PlayClock(at, duration_s=recording.duration_s, speed=speed, running=True)
    return run_guarded(ReplayApp(recording, play))
