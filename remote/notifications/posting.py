"""Posting what waits in the outbox, in a thread of its own: what a receiver does never holds anybody up."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from remote.jobs import vault
from remote.notifications.outbox import Outbox
from remote.notifications.webhook import Refused, Webhook, post, webhook_of
from remote.protocol.notifications import Delivered, GivenUp, NotificationRecord, Waiting

RETRIES_S = (5.0, 60.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0)
"""How long each failed attempt is waited after; after the last of them it is given up, 18 hours after the first."""

_LOOK_EVERY_S = 1.0


def attempted(record: NotificationRecord, waiting: Waiting, send: Callable[[], None], now: float) -> NotificationRecord:
    """The record after one attempt to `send` it."""
    attempts = waiting.attempts + 1
    try:
        send()
    except Refused as refused:
        trouble = str(refused)
        if refused.is_final or attempts > len(RETRIES_S):
            return structs.replace(record, delivery=GivenUp(at=now, attempts=attempts, trouble=trouble))
        delivery = Waiting(next_at=now + RETRIES_S[attempts - 1], attempts=attempts, trouble=trouble)
        return structs.replace(record, delivery=delivery)
    return structs.replace(record, delivery=Delivered(at=now, attempts=attempts))


class Postman(threading.Thread):
    """Posts what is due until it is told to end; started again after a kill it posts what was under way once more, under the same id."""

    def __init__(self, root: Path, complain: Callable[[str], None]) -> None:
        super().__init__(name="postman", daemon=True)
        self._root = root
        self._outbox = Outbox(root)
        self._complain = complain
        self._ended = threading.Event()

    def run(self) -> None:
        """Look once a second."""
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                self.post_due()
            except OSError as error:
                self._complain(f"a notification was not posted: {error}")

    def end(self) -> None:
        """Do not begin another one; the thread dies with its process."""
        self._ended.set()

    def post_due(self) -> None:
        """Post everything that is due now, the oldest first. Raises OSError."""
        due = [each for each in self._outbox.waiting() if _is_due(each, time.time())]
        if not due:
            return
        webhook = webhook_of(vault.read_values(self._root))
        for record in due:
            if self._ended.is_set():
                return
            assert isinstance(record.delivery, Waiting)
            self._outbox.keep(attempted(record, record.delivery, lambda each=record: _send(webhook, each), time.time()))


def _is_due(record: NotificationRecord, now: float) -> bool:
    return isinstance(record.delivery, Waiting) and record.delivery.next_at <= now


def _send(webhook: Webhook | None, record: NotificationRecord) -> None:
    if webhook is None:
        raise Refused("no webhook is set any more", is_final=True)
    post(webhook, record.notification, time.time())
