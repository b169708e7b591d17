"""What the recorder tells people who are not looking: it finds it in its readings, keeps it, and has it posted."""

import platform
import time
from collections.abc import Callable, Iterable

from remote.jobs import vault
from remote.jobs.store import JobStore
from remote.notifications.finding import Finder
from remote.notifications.outbox import Outbox
from remote.notifications.posting import Postman
from remote.notifications.webhook import webhook_of
from remote.protocol.jobs import Job
from remote.protocol.notifications import Notification
from remote.protocol.telemetry import Diagnosis

_TOLD_FOR_S = 60.0
"""So long a notification is in the readings: a link or a screen that missed one of them has it from the next."""


class Notifier:
    """The notifications of one root, while its recorder lives."""

    def __init__(self, store: JobStore, complain: Callable[[str], None]) -> None:
        self._store = store
        self._complain = complain
        self._outbox = Outbox(store.root)
        try:
            since = self._outbox.begin()
        except OSError as error:
            complain(f"no outbox for notifications: {error}")
            since = time.time()
        told = [record.notification for record in self._outbox.list()]
        self._finder = Finder(told, since, platform.node())
        self._postman = Postman(store.root, complain)
        self._postman.start()

    def advance(self, ended: Iterable[Job], diagnoses: Iterable[Diagnosis], now: float) -> list[Notification]:
        """Keep what is new; the notifications of the last minute."""
        found = self._finder.advance(ended, diagnoses, now)
        try:
            if found:
                is_wanted = webhook_of(vault.read_values(self._store.root)) is not None
                for notification in found:
                    self._outbox.take(notification, is_wanted=is_wanted)
        except OSError as error:
            self._complain(f"a notification was not kept: {error}")
        recent = [each.notification for each in self._outbox.list() if each.notification.at > now - _TOLD_FOR_S]
        return [*recent, *(each for each in found if each not in recent)]

    def has_work(self) -> bool:
        """Whether something is still to be posted."""
        return bool(self._outbox.waiting())

    def close(self) -> None:
        """Post nothing more."""
        self._postman.end()
