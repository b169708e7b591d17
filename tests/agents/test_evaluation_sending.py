"""So many at a time, never more; the replies in the order of what was asked; a stop or an error ends it."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.agents.evaluation.sending import send_all


def nothing() -> None:
    pass


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(), max_size=30), st.integers(1, 6))
def test_every_ask_has_its_reply_in_order_and_is_told_once(asks: list[int], concurrency: int) -> None:
    told: list[int] = []
    assert send_all(asks, concurrency, lambda ask: -ask, told.append, nothing) == [-ask for ask in asks]
    assert sorted(told) == sorted(-ask for ask in asks)


def test_as_many_are_under_way_as_were_asked_for_and_no_more() -> None:
    lock, under_way, most = threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def send(ask: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(timeout=30)
        with lock:
            under_way -= 1
        return ask

    send_all(list(range(9)), 3, send, lambda _: None, nothing)
    assert most == 3


def test_a_stop_leaves_what_was_not_begun() -> None:
    sent: list[int] = []

    class Asked(Exception):
        pass

    def check() -> None:
        raise Asked

    with pytest.raises(Asked):
        send_all(list(range(1000)), 2, sent.append, lambda _: None, check)
    assert len(sent) < 1000


def test_a_request_that_fails_ends_it() -> None:
    def send(ask: int) -> int:
        raise ValueError(ask)

    with pytest.raises(ValueError, match="0"):
        send_all([0], 1, send, lambda _: None, nothing)
