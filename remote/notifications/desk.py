"""Answers about the notifications of a root, and one that is raised to try its webhook."""

import platform
import time
from pathlib import Path

from remote.errors import Precondition
from remote.jobs import vault
from remote.notifications.outbox import MOST_KEPT, Outbox
from remote.notifications.webhook import webhook_of
from remote.protocol.notifications import (
    WEBHOOK_KEY,
    WEBHOOK_URL,
    Notification,
    NotificationList,
    NotificationReply,
)


def list_notifications(root: Path) -> NotificationList:
    """The newest of them, and whether new ones are posted."""
    has_webhook = webhook_of(vault.read_values(root)) is not None
    return NotificationList(records=Outbox(root).list()[:MOST_KEPT], has_webhook=has_webhook)


def get_notification(root: Path, notification_id: str) -> NotificationReply:
    """One of them as it is now; raises NotFound."""
    return NotificationReply(record=Outbox(root).read(notification_id))


def try_webhook(root: Path, op_id: str) -> NotificationReply:
    """Put a test into the outbox, the same for the same operation; raises Precondition where no webhook is set."""
    if webhook_of(vault.read_values(root)) is None:
        raise Precondition(
            "this host has no webhook",
            hint=f"`roost secrets set {WEBHOOK_URL}` and `roost secrets set {WEBHOOK_KEY}` set one.",
        )
    outbox = Outbox(root)
    outbox.begin()
    test = Notification(
        notification_id=f"test-{op_id}",
        kind="test",
        at=time.time(),
        host_name=platform.node(),
        subject="webhook",
        text="This is a test: notifications of this host arrive here.",
    )
    return NotificationReply(record=outbox.take(test, is_wanted=True))
