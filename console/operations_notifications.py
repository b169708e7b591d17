"""What a host tells people who are not looking: to see what was told, and to try its webhook."""

import asyncio

from console.errors import ConsoleError
from console.operations import Session, ask
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import OpId, new_op_id
from remote.protocol.notifications import (
    GetNotification,
    ListNotifications,
    NotificationList,
    NotificationRecord,
    NotificationReply,
    TryWebhook,
    Waiting,
)

_LOOK_S = 0.5


async def list_notifications(session: Session) -> NotificationList:
    """What the host raised, newest first, what became of it, and whether new ones are posted."""
    return await ask(session, ListNotifications(), NotificationList)


async def try_webhook(session: Session, *, timeout_s: float, op_id: OpId | None = None) -> NotificationRecord:
    """Have the host post a test; the record after the first attempt. Raises `timeout` when there was none in that time."""
    reply = await ask(session, TryWebhook(op_id=op_id or new_op_id()), NotificationReply)
    asked = GetNotification(notification_id=reply.record.notification.notification_id)
    try:
        async with asyncio.timeout(timeout_s):
            while not is_tried(reply.record):
                await asyncio.sleep(_LOOK_S)  # the host streams what was raised, not what becomes of it
                reply = await ask(session, asked, NotificationReply)
    except TimeoutError:
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.TIMEOUT,
                message=f"the host did not post the test in {timeout_s:g} s",
                hint="its recorder posts; `roost jobs --all` shows whether there is one",
                retryable=True,
                next_command="roost notifications list",
            )
        ) from None
    return reply.record


def is_tried(record: NotificationRecord) -> bool:
    """Whether there was an attempt to post it."""
    match record.delivery:
        case Waiting(attempts=attempts):
            return attempts > 0
        case _:
            return True
