"""The page of the hosts: all of them side by side, opened no more than needed, and one that does not answer costs the others nothing."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from console.errors import ConnectionFailed, UnknownHostKey
from console.state.link import Closed, Up
from console.ui.app import RoostApp
from console.ui.host_feeds import MOST_LOOKED_AT
from console.ui.recording import RecordedSession
from console.ui.widgets.host_cards import HostCard
from tests.ui.conftest import Shown

NAMES = ("lab", "rtx", "silent", "broken")


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Writes roost.toml with these hosts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def write(*names: str, more: str = "") -> None:
        place = tmp_path / "roost/roost.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(f'[hosts.{name}]\naddress = "{name}.example.com"\n' for name in names) + more)

    return write


@asynccontextmanager
async def several(records, others, *, size=(120, 35)):
    """The screen on `lab`; `rtx` plays `others`, `silent` never answers, `broken` refuses; how often each is open is in the dictionary."""
    opened: dict[str, int] = {}
    session = RecordedSession(records, until=180.0)

    def connect_to(name: str):
        @asynccontextmanager
        async def connect():
            opened[name] = opened.get(name, 0) + 1
            try:
                if name == "silent":
                    await asyncio.Event().wait()
                if name == "broken":
                    raise ConnectionFailed("broken refused the login", hint="which key?", retryable=False)
                if name == "new":
                    raise UnknownHostKey("new", "new.example.com", "SHA256:x", "ssh-ed25519")
                yield session if name == "lab" else RecordedSession(others, until=295.0)
            finally:
                opened[name] -= 1

        return connect

    app = RoostApp("lab", connect_to("lab"), connect_to=connect_to)
    async with app.run_test(size=size) as pilot:
        yield Shown(app, pilot, session), opened


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 35), (200, 50)])
async def test_all_hosts_are_side_by_side_with_what_matters_of_each(embedded_run, eight_gpus, configured, size) -> None:
    configured(*NAMES)
    async with several(embedded_run, eight_gpus, size=size) as (screen, _):
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("8")
        await screen.until_shown("▸ lab", "rtx", "silent", "broken", "not open")
        await screen.until_shown(
            "● connected", "◌ connecting", "✗ not tried again", "8/8 GPUs" if size[0] > 60 else "/8"
        )
        if size[0] >= 80:
            await screen.until_shown("✗ GPU 6")
        if size[0] >= 120:
            await screen.until_shown("broken refused the login")


async def test_enter_shows_another_host_and_keeps_the_one_before(embedded_run, eight_gpus, configured) -> None:
    configured(*NAMES)
    async with several(embedded_run, eight_gpus) as (screen, opened):
        await screen.until_shown("step 225/400  loss")
        assert opened == {"lab": 1}, "nothing else is opened before somebody looks"
        await screen.pilot.press("8")
        await screen.until_shown("8/8 GPUs")
        card = next(card for card in screen.app.screen.query(HostCard) if card.host_name == "rtx")
        card.focus()
        await screen.pilot.press("enter")
        await screen.until(lambda: "rtx" in screen.lines[0] and "GPU 7" in screen.text)
        assert {name for name, count in opened.items() if count} == {"lab", "rtx"}
        assert isinstance(next(feed for feed in screen.app.feeds if feed.state.name == "lab").state.link, Up)
        await screen.pilot.press("8")
        await screen.until_shown("▸ rtx")
        next(card for card in screen.app.screen.query(HostCard) if card.host_name == "lab").focus()
        await screen.pilot.press("enter")
        await screen.until(lambda: "lab" in screen.lines[0] and "step 225/400  loss" in screen.text)
        assert {name for name, count in opened.items() if count} == {"lab", "rtx"}


async def test_what_was_only_looked_at_is_closed_with_the_page_and_opened_again_with_it(
    embedded_run, eight_gpus, configured
) -> None:
    configured(*NAMES)
    async with several(embedded_run, eight_gpus) as (screen, opened):
        await screen.pilot.press("8")
        await screen.until_shown("8/8 GPUs")
        await screen.pilot.press("1")
        await screen.until(lambda: {name for name, count in opened.items() if count} == {"lab"})
        await screen.pilot.press("8")
        await screen.until(lambda: opened["rtx"] == 1)
        await screen.until_shown("8/8 GPUs")


async def test_no_more_hosts_are_looked_at_than_the_bound(embedded_run, configured) -> None:
    configured("lab", *(f"silent{index}" for index in range(MOST_LOOKED_AT + 4)))
    async with several(embedded_run, embedded_run, size=(80, 50)) as (screen, opened):
        await screen.until_shown("step 225/400  loss")
        await screen.pilot.press("8")
        await screen.until(lambda: len(opened) == MOST_LOOKED_AT + 1)
        await screen.until_shown("not open")
        assert len(opened) == MOST_LOOKED_AT + 1


async def test_the_key_of_a_host_is_asked_for_only_when_it_is_chosen(embedded_run, configured) -> None:
    configured("lab", "new")
    async with several(embedded_run, embedded_run) as (screen, _):
        await screen.pilot.press("8")
        await screen.until_shown("the host key of new")
        feed = next(feed for feed in screen.app.feeds if feed.state.name == "new")
        assert isinstance(feed.state.link, Closed)
        assert len(screen.app.screen_stack) == 2
        next(card for card in screen.app.screen.query(HostCard) if card.host_name == "new").focus()
        await screen.pilot.press("enter")
        await screen.until_shown("Unknown host key", "Trust it")


async def test_a_price_is_shown_where_it_is_said(embedded_run, eight_gpus, configured) -> None:
    configured("lab", "rtx", more='price_per_hour = 18.0\ncurrency = "EUR"\n')
    async with several(embedded_run, eight_gpus, size=(200, 50)) as (screen, _):
        await screen.pilot.press("8")
        await screen.until_shown("18.00 EUR an hour")
        assert screen.text.count("an hour") == 1
