"""What a host tells people who are not looking: which events, and what became of telling them."""

from typing import Annotated, Literal

from msgspec import Meta

from remote.protocol.base import Message
from remote.protocol.ids import JobId, OpId

NotificationKind = Literal["verdict", "finished", "failed", "disk_short", "gpu_fault", "test"]
"""`verdict` is a run that reached one, `finished` and `failed` any other work that a person started, `test` was asked for."""

NotificationId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,99}\Z")]

WEBHOOK_URL, WEBHOOK_KEY = "ROOST_WEBHOOK_URL", "ROOST_WEBHOOK_KEY"
"""The secrets of a host that say where its notifications are posted, and what signs them; no job gets them."""


class Notification(Message, frozen=True, kw_only=True):
    """One event that a person wants to know of: `text` is a sentence, `subject` a job, a disk or a device; `at` by the host's clock."""

    notification_id: NotificationId
    kind: NotificationKind
    at: float
    host_name: str
    subject: str
    text: str
    job_id: JobId | None = None
    decision: str | None = None


class Unsent(Message, frozen=True, kw_only=True):
    """No webhook was set when it was raised."""


class Waiting(Message, frozen=True, kw_only=True):
    """It is posted at `next_at`; `trouble` is why the last of so many attempts failed."""

    next_at: float
    attempts: int = 0
    trouble: str = ""


class Delivered(Message, frozen=True, kw_only=True):
    """The receiver took it."""

    at: float
    attempts: int


class GivenUp(Message, frozen=True, kw_only=True):
    """Nobody took it in all attempts, or the receiver said that it is gone."""

    at: float
    attempts: int
    trouble: str


Delivery = Unsent | Waiting | Delivered | GivenUp


class NotificationRecord(Message, frozen=True, kw_only=True):
    """A notification and what became of it."""

    notification: Notification
    delivery: Delivery


class ListNotifications(Message, frozen=True, kw_only=True):
    """What was raised, newest first -> `NotificationList`."""


class TryWebhook(Message, frozen=True, kw_only=True):
    """Raise one of kind `test` -> `NotificationReply`, which is on its way then; refused where no webhook is set."""

    op_id: OpId


class GetNotification(Message, frozen=True, kw_only=True):
    """One notification as it is now -> `NotificationReply`."""

    notification_id: NotificationId


class NotificationReply(Message, frozen=True, kw_only=True):
    """One notification."""

    record: NotificationRecord


class NotificationList(Message, frozen=True, kw_only=True):
    """The newest notifications; `has_webhook` is whether new ones are posted."""

    records: list[NotificationRecord]
    has_webhook: bool
