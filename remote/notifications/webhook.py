"""A notification as an HTTP request that its receiver can check: signed as Standard Webhooks 1.0 says (standardwebhooks.com)."""

import base64
import binascii
import hashlib
import hmac
import http.client
import urllib.error
import urllib.request
from datetime import datetime, timezone
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from remote.protocol.notifications import WEBHOOK_KEY, WEBHOOK_URL, Notification

TIMEOUT_S = 10.0
_KEY_PREFIX = "whsec_"


class Webhook(NamedTuple):
    """Where notifications are posted, and the key that signs them (`whsec_` and base64)."""

    url: str
    key: str


class Refused(Exception):
    """The request was not taken, for this reason; `is_final` means that it never will be."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


def webhook_of(secrets: dict[str, str]) -> Webhook | None:
    """The webhook that a host's secrets describe; None where no URL is among them."""
    url = secrets.get(WEBHOOK_URL)
    return None if url is None else Webhook(url, secrets.get(WEBHOOK_KEY, ""))


def body_of(notification: Notification) -> bytes:
    """The JSON that is posted: `type`, `timestamp` (ISO 8601, UTC) and the notification as `data`."""
    timestamp = datetime.fromtimestamp(notification.at, timezone.utc).isoformat().replace("+00:00", "Z")
    return msgspec.json.encode({"type": notification.kind, "timestamp": timestamp, "data": notification})


def headers_of(notification: Notification, body: bytes, key: str, now: float) -> dict[str, str]:
    """`webhook-id`, `webhook-timestamp` and `webhook-signature`: HMAC-SHA256 over the three, base64. Raises Refused for a key that is none."""
    try:
        secret = base64.b64decode(key.removeprefix(_KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not secret:
        raise Refused(
            f"{WEBHOOK_KEY} is no key: it is {_KEY_PREFIX} and base64, as `roost notifications key` makes one"
        )
    stamp = str(int(now))
    signed = f"{notification.notification_id}.{stamp}.".encode() + body
    signature = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return {
        "content-type": "application/json",
        "user-agent": "roost",
        "webhook-id": notification.notification_id,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{signature}",
    }


def post(webhook: Webhook, notification: Notification, now: float) -> None:
    """Post it; anything but a 2xx within 10 s, a redirect included, raises Refused. 410 is final."""
    if urlsplit(webhook.url).scheme not in ("http", "https"):
        raise Refused(f"{WEBHOOK_URL} is no http or https address")
    body = body_of(notification)
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        webhook.url, data=body, headers=headers_of(notification, body, webhook.key, now), method="POST"
    )
    try:
        with _opener.open(request, timeout=TIMEOUT_S):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise Refused(f"the receiver answered {error.code}", is_final=error.code == http.client.GONE) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise Refused(f"the receiver was not reached: {str(reason) or type(reason).__name__}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is signed for one address is not taken to another."""

    def redirect_request(self, *_: object) -> None:
        """None: the answer stands as it is."""


_opener = urllib.request.build_opener(_NoRedirect)
