"""What is posted: signed as the standard's own library checks it, never redirected, refused with a reason."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Standard

from remote.notifications.webhook import Refused, Webhook, body_of, headers_of, post
from remote.protocol.notifications import Notification

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def notification(text: str = "training-a failed: out of memory", at: float = 1_796_000_000.5) -> Notification:
    return Notification(
        notification_id="job-training-a", kind="failed", at=at, host_name="lab-7", subject="training-a", text=text
    )


def test_the_receiver_can_check_who_posted_what(receiver) -> None:
    sent = notification()
    post(Webhook(receiver.url, KEY), sent, time.time())
    ((headers, body),) = receiver.got
    told = Standard(KEY).verify(body, headers)
    assert told["type"] == "failed"
    assert told["timestamp"] == "2026-11-30T00:53:20.500000Z"
    assert told["data"]["text"] == sent.text
    assert headers["webhook-id"] == "job-training-a"
    with pytest.raises(Exception, match="signature"):
        Standard(KEY).verify(body.replace(b"failed", b"passed"), headers)


@given(st.text(max_size=200))
def test_any_text_is_signed_as_it_is_posted(text: str) -> None:
    body = body_of(notification(text))
    assert Standard(KEY).verify(body, headers_of(notification(text), body, KEY, time.time()))["data"]["text"] == text
    assert json.loads(body)["data"]["text"] == text


@pytest.mark.parametrize(("answer", "is_final"), [(500, False), (404, False), (302, False), (410, True)])
def test_what_is_not_taken_is_refused_and_nothing_is_followed(receiver, answer: int, is_final: bool) -> None:
    receiver.answers = [answer]
    with pytest.raises(Refused, match=str(answer)) as refused:
        post(Webhook(receiver.url, KEY), notification(), 1.0)
    assert refused.value.is_final == is_final
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("url", "key", "said"),
    [
        ("http://127.0.0.1:1/", KEY, "not reached: .*refused"),
        ("file:///etc/passwd", KEY, "no http or https address"),
        ("http://", KEY, "not reached"),
        ("http://127.0.0.1:1/", "", "ROOST_WEBHOOK_KEY is no key"),
        ("http://127.0.0.1:1/", "whsec_?", "ROOST_WEBHOOK_KEY is no key"),
    ],
)
def test_what_cannot_be_posted_says_why(url: str, key: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        post(Webhook(url, key), notification(), 1.0)
