"""A call that may hang, asked from a thread so that nobody waits longer than he is willing to."""

import threading
import time
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

_T = TypeVar("_T")


class NoAnswer(Exception):
    """The call is still under way; `waiting_s` is the time since it began."""

    def __init__(self, waiting_s: float) -> None:
        super().__init__(f"no answer for {waiting_s:.1f} s")
        self.waiting_s = waiting_s


class Deadline(Generic[_T]):
    """One reader of something slow: at most one call at a time, so a stuck device costs one thread and not one a second."""

    def __init__(self, read: Callable[[], _T]) -> None:
        self._read = read
        self._thread = threading.Thread()
        self._began = time.monotonic()
        self._answer: Callable[[], _T] | None = None

    def begin(self) -> None:
        """Start a call unless the last one is still under way."""
        if self._thread.is_alive():
            return
        self._answer = None
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="roost-telemetry", daemon=True)
        self._thread.start()

    def collect(self, timeout_s: float) -> _T:
        """The answer of the call that `begin` started before; raises NoAnswer after `timeout_s`, or what the call raised."""
        self._thread.join(max(0.0, timeout_s))
        if self._answer is None:
            raise NoAnswer(time.monotonic() - self._began)
        return self._answer()

    def _run(self) -> None:
        try:
            value = self._read()
        except BaseException as error:  # noqa: BLE001 - carried to the thread that asked, and raised there
            self._answer = _raising(error)
        else:
            self._answer = lambda: value


def _raising(error: BaseException) -> Callable[[], NoReturn]:
    def answer() -> NoReturn:
        raise error

    return answer
