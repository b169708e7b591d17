"""So many requests at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

_Ask = TypeVar("_Ask")
_Reply = TypeVar("_Reply")


def send_all(
    asks: Sequence[_Ask],
    concurrency: int,
    send: Callable[[_Ask], _Reply],
    tell: Callable[[_Reply], None],
    check: Callable[[], None],
) -> list[_Reply]:
    """Send everything, at most `concurrency` at a time; the replies in the order of `asks`.

    Each reply is told as it comes. What `check` or `send` raises ends it when those under way are done.
    """
    with ThreadPoolExecutor(concurrency) as pool:
        futures = [pool.submit(send, ask) for ask in asks]
        try:
            for future in as_completed(futures):
                tell(future.result())
                check()
        except BaseException:  # a stop as well: leaving the pool would send all the rest first
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
