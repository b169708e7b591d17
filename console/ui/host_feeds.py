"""The hosts that the screen has open: the one that it shows, those that were chosen before, and those that the page of the hosts looks at."""

import asyncio
from collections.abc import Callable, Iterator

from console import operations, operations_allocation
from console.config.hosts import HostConfig
from console.errors import ConsoleError
from console.state.allocation import Allocation
from console.state.link import Closed
from console.state.sanitize import one_line
from console.ui.host_feed import FeedOwner, HostFeed
from console.ui.session import Connect
from console.ui.views.host_cards import HostLook

MOST_LOOKED_AT = 8
"""So many hosts are opened only to be looked at; the others are opened when they are chosen."""

_ALLOCATION_EVERY_S = 30.0

ConnectTo = Callable[[str], Connect]
"""How to open a host by its name."""


class HostFeeds:
    """`shown` is the host of all pages; `connect_to` is None where there is no other host, as in a replay."""

    def __init__(self, shown: HostFeed, owner: FeedOwner, connect_to: ConnectTo | None) -> None:
        self.shown = shown
        self._owner = owner
        self._connect_to = connect_to
        self._by_name = {shown.state.name: shown}
        self._chosen = {shown.state.name}
        self._allocations: dict[str, Allocation | str] = {}

    def __iter__(self) -> Iterator[HostFeed]:
        """All that are known, open or not."""
        return iter(list(self._by_name.values()))

    def look(self) -> tuple[list[HostLook], str]:
        """Every configured host, this machine's first, as it is known now, and what is wrong with `roost.toml`."""
        try:
            hosts, problem = operations.list_hosts(), ""
        except ConsoleError as error:
            hosts, problem = {}, one_line(error.info.message)
        shown = self.shown.state.name
        names = dict.fromkeys([operations.EMBEDDED, *hosts, shown] if self._connect_to is not None else [shown])
        self._look_at([name for name in names if name in hosts], hosts)
        return [self._look_of(name, hosts.get(name)) for name in names], problem

    def _look_of(self, name: str, host: HostConfig | None) -> HostLook:
        feed = self._by_name.get(name)
        return HostLook(
            name=name,
            address="this machine, over loopback SSH" if host is None else host.address,
            state=None if feed is None else feed.state,
            is_open=feed is not None and not feed.is_resting,
            is_shown=feed is self.shown,
            price=None if host is None else host.price,
            allocation=self._allocations.get(name),
        )

    def _look_at(self, names: list[str], hosts: dict[str, HostConfig]) -> None:
        """Open those that are not open, as far as the bound goes, and ask Slurm's queue for those that live in an allocation."""
        if self._connect_to is None:
            return
        for name in [name for name in names if name not in self._chosen][:MOST_LOOKED_AT]:
            feed = self._feed(name)
            if feed is not None and feed.is_resting:
                feed.listen()
        for name in names:
            feed = self._by_name.get(name)
            if feed is not None and hosts[name].slurm is not None and name not in self._allocations:
                self._allocations[name] = "the queue is asked"
                self._owner.run_for(feed, "allocation", self._follow_allocation(name))

    async def _follow_allocation(self, name: str) -> None:
        try:
            while True:
                try:
                    found = await operations_allocation.read_allocation(name)
                    self._allocations[name] = "no allocation" if found is None else found
                except ConsoleError as error:
                    self._allocations[name] = f"not known: {one_line(error.info.message)}"
                self._owner.take_answer()
                await asyncio.sleep(_ALLOCATION_EVERY_S)
        finally:
            self._allocations.pop(name, None)

    def look_away(self) -> None:
        """Close what was opened only to be looked at; what is known of it stays, with its age."""
        for name, feed in self._by_name.items():
            if name not in self._chosen and not feed.is_resting:
                feed.rest()

    def choose(self, name: str) -> HostFeed | None:
        """Show another host from now on; the one before stays open. None where no other can be opened."""
        feed = self._feed(name)
        if feed is None:
            return None
        self._chosen.add(name)
        self.shown = feed
        if feed.is_resting or isinstance(feed.state.link, Closed):
            feed.listen()
        return feed

    def _feed(self, name: str) -> HostFeed | None:
        if name not in self._by_name and self._connect_to is not None:
            self._by_name[name] = HostFeed(name, self._connect_to(name), self._owner)
        return self._by_name.get(name)
