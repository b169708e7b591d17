"""The outbox: what is posted again until somebody takes it, and what outlives a kill."""

import time

import msgspec
import pytest

from remote.errors import NotFound
from remote.jobs import vault
from remote.notifications.outbox import MOST_KEPT, Outbox
from remote.notifications.posting import RETRIES_S, Postman, attempted
from remote.notifications.webhook import Refused
from remote.protocol.notifications import (
    WEBHOOK_KEY,
    WEBHOOK_URL,
    Delivered,
    GivenUp,
    NotificationRecord,
    Unsent,
    Waiting,
)
from tests.notifications.test_webhook import KEY, notification


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    made.mkdir()
    yield made
    for name in (WEBHOOK_URL, WEBHOOK_KEY):
        vault.forget(made, name)


def refuse() -> None:
    raise Refused("the receiver answered 503")


def due(record: NotificationRecord) -> NotificationRecord:
    assert isinstance(record.delivery, Waiting)
    return msgspec.structs.replace(record, delivery=msgspec.structs.replace(record.delivery, next_at=0.0))


def test_it_is_tried_ever_more_rarely_and_then_given_up() -> None:
    record, waits = NotificationRecord(notification=notification(), delivery=Waiting(next_at=0.0)), []
    while isinstance(waiting := record.delivery, Waiting):
        record = attempted(record, waiting, refuse, 100.0)
        if isinstance(record.delivery, Waiting):
            waits.append(record.delivery.next_at - 100.0)
    assert waits == list(RETRIES_S) == sorted(waits)
    assert record.delivery == GivenUp(at=100.0, attempts=len(RETRIES_S) + 1, trouble="the receiver answered 503")


def test_what_was_refused_is_posted_again_under_the_same_id(root, receiver) -> None:
    vault.keep(root, WEBHOOK_URL, receiver.url)
    vault.keep(root, WEBHOOK_KEY, KEY)
    outbox, complaints = Outbox(root), []
    outbox.begin()
    outbox.take(notification(), is_wanted=True)
    receiver.answers = [503]
    Postman(root, complaints.append).post_due()
    again = outbox.read("job-training-a")
    assert isinstance(again.delivery, Waiting)
    assert (again.delivery.attempts, again.delivery.trouble) == (1, "the receiver answered 503")
    Postman(root, complaints.append).post_due()
    assert len(receiver.got) == 1, "it is not due yet"
    outbox.keep(due(again))
    Postman(root, complaints.append).post_due()
    assert isinstance(outbox.read("job-training-a").delivery, Delivered)
    assert [headers["webhook-id"] for headers, _ in receiver.got] == ["job-training-a"] * 2
    assert complaints == []


def test_without_a_webhook_nothing_is_posted_later(root, receiver) -> None:
    outbox = Outbox(root)
    outbox.begin()
    assert outbox.take(notification(), is_wanted=False).delivery == Unsent()
    vault.keep(root, WEBHOOK_URL, receiver.url)
    vault.keep(root, WEBHOOK_KEY, KEY)
    Postman(root, print).post_due()
    assert receiver.got == []


def test_no_job_finds_where_notifications_go_in_its_environment(root) -> None:
    vault.keep(root, WEBHOOK_URL, "https://hooks.example/secret-path")
    vault.keep(root, WEBHOOK_KEY, KEY)
    vault.keep(root, "HF_TOKEN", "hf_0123456789")
    assert vault.read_values_for_jobs(root) == {"HF_TOKEN": "hf_0123456789"}
    vault.forget(root, "HF_TOKEN")


def test_an_outbox_keeps_what_waits_and_the_newest_of_the_rest(root) -> None:
    outbox = Outbox(root)
    began = outbox.begin()
    assert outbox.begin() == began, "it begins once"
    raised = [
        msgspec.structs.replace(notification(), notification_id=f"n-{number}", at=float(number))
        for number in range(MOST_KEPT + 3)
    ]
    for number, each in enumerate(raised):
        outbox.take(each, is_wanted=number == 0)
    kept = Outbox(root).list()
    assert len(kept) == MOST_KEPT + 1
    assert isinstance(kept[-1].delivery, Waiting), "the oldest of all waits"
    assert [each.notification.notification_id for each in outbox.waiting()] == ["n-0"]
    with pytest.raises(NotFound):
        outbox.read("n-1")
    (root / "notifications/n-9.json").write_text("{")
    assert len(Outbox(root).list()) == MOST_KEPT, "what cannot be read is left out"


def test_a_record_that_was_changed_by_another_process_is_seen(root) -> None:
    outbox = Outbox(root)
    outbox.begin()
    record = outbox.take(notification(), is_wanted=True)
    assert outbox.waiting()
    Outbox(root).keep(msgspec.structs.replace(record, delivery=Delivered(at=time.time(), attempts=1)))
    assert not outbox.waiting()


def test_what_waits_for_a_webhook_that_was_removed_is_given_up(root) -> None:
    outbox, complaints = Outbox(root), []
    outbox.begin()
    outbox.take(notification(), is_wanted=True)
    Postman(root, complaints.append).post_due()
    given_up = outbox.read("job-training-a").delivery
    assert isinstance(given_up, GivenUp)
    assert (given_up.attempts, given_up.trouble) == (1, "no webhook is set any more")
    assert not outbox.waiting()
