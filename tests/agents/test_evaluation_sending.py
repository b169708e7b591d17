"""So many at a time, never more; the replies in the order of what was asked; a stop or an error ends it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remote.agents.evaluation import sending
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


def test_a_stop_leaves_what_was_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    is_told_to_end = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            is_told_to_end.set()
            super().shutdown(wait=wait)

    class Asked(Exception):
        pass

    def send(ask: int) -> None:
        sent.append(ask)
        assert ask == 0 or is_told_to_end.wait(30)

    def check() -> None:
        raise Asked

    monkeypatch.setattr(sending, "ThreadPoolExecutor", Pool)
    with pytest.raises(Asked):
        send_all(list(range(1000)), 2, send, lambda _: None, check)
    assert len(sent) <= 3, "the first, and one under way for each thread"


def test_a_request_that_fails_ends_it() -> None:
    def send(ask: int) -> int:
        raise ValueError(ask)

    with pytest.raises(ValueError, match="0"):
        send_all([0], 1, send, lambda _: None, nothing)
