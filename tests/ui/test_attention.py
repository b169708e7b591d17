"""Being noticed: the bell, the desktop, a command of one's own, and what comes up on the screen."""

import asyncio
import json
import sys

import msgspec
import pytest

from console.config.hosts import load_notifications
from console.config.notifications import NotificationConfig
from console.errors import UsageError
from console.ui import attention
from console.ui.attention import BELL, Attention, desktop_sequence
from remote.protocol.frames import Telemetry
from remote.protocol.notifications import Notification
from tests.protocol.protocol_samples import NOTIFICATION

FAULT = msgspec.structs.replace(
    NOTIFICATION.notification,
    notification_id="gpu-fault-1",
    kind="gpu_fault",
    subject="GPU 3",
    text="GPU 3 is lost",
    job_id=None,
)


class Terminal:
    def __init__(self, config: NotificationConfig) -> None:
        self.written: list[str] = []
        self.told: list[str] = []
        self.attention = Attention(config, self.written.append, self.told.append)


async def test_the_bell_rings_unless_somebody_says_otherwise() -> None:
    loud, silent = Terminal(NotificationConfig()), Terminal(NotificationConfig(bell=False))
    loud.attention.call([FAULT])
    silent.attention.call([FAULT])
    assert (loud.written, silent.written) == ([BELL], [])


def test_a_desktop_hears_it_also_through_tmux_and_nothing_of_the_text_is_a_command() -> None:
    assert desktop_sequence("a\x1b]52;c;x\x07b", in_tmux=False).count("\x1b") == 1
    inner = desktop_sequence("GPU 3 is lost", in_tmux=False)
    assert inner == "\x1b]9;GPU 3 is lost\x07"
    assert desktop_sequence("GPU 3 is lost", in_tmux=True) == f"\x1bPtmux;{inner.replace(chr(27), chr(27) * 2)}\x1b\\"


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_command_gets_the_notification_and_is_tried_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(attention, "_RETRIES_S", (0.0, 0.0))
    program = (
        "import os, pathlib, sys; place = pathlib.Path(sys.argv[1]); first = not place.exists(); place.touch(); "
        "sys.exit(3) if first else place.write_text(sys.stdin.read() + chr(10) + os.environ['ROOST_NOTIFICATION_TEXT'])"
    )
    terminal = Terminal(NotificationConfig(bell=False, command=[sys.executable, "-c", program, str(tmp_path / "got")]))
    terminal.attention.call([FAULT])
    await until(lambda: not terminal.attention.is_busy)
    document, text = (tmp_path / "got").read_text().splitlines()
    assert msgspec.convert(json.loads(document), Notification) == FAULT
    assert text == FAULT.text
    assert terminal.told == []


@pytest.mark.parametrize(
    ("command", "said"),
    [(["/nowhere/notify"], "No such file"), ([sys.executable, "-c", "import sys; sys.exit('no bus')"], "no bus")],
)
async def test_a_command_that_does_not_work_is_told_once(command, said, monkeypatch) -> None:
    monkeypatch.setattr(attention, "_RETRIES_S", (0.0, 0.0))
    terminal = Terminal(NotificationConfig(command=command))
    terminal.attention.call([FAULT])
    await until(lambda: not terminal.attention.is_busy)
    (problem,) = terminal.told
    assert said in problem
    assert "[notifications]" in problem


async def test_a_notification_comes_up_once_on_the_screen(embedded_run, show) -> None:
    async with show(embedded_run, until=60.0, size=(120, 35)) as screen:
        await screen.until(lambda: screen.app.feed.state.sample is not None)
        sample = screen.app.feed.state.sample
        later = msgspec.structs.replace(sample, sampled_at=sample.sampled_at + 1, notifications=[FAULT])
        await screen.send(Telemetry(sample=later))
        await screen.until(lambda: "GPU 3 is lost" in [note.message for note in screen.app._notifications])
        shown = len(screen.app._notifications)
        await screen.send(Telemetry(sample=msgspec.structs.replace(later, sampled_at=later.sampled_at + 1)))
        await screen.until(lambda: screen.app.feed.state.sample.sampled_at == later.sampled_at + 1)
        assert len(screen.app._notifications) == shown


def test_a_wrong_word_in_the_file_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "roost").mkdir()
    (tmp_path / "roost/roost.toml").write_text("[notifications]\nbel = false\n")
    with pytest.raises(UsageError, match=r"roost\.toml.*bel"):
        load_notifications()
    (tmp_path / "roost/roost.toml").write_text('[notifications]\nbell = false\ncommand = ["x"]\n')
    assert load_notifications() == NotificationConfig(bell=False, command=["x"])
