"""What waits for a consumer that does not listen: bounded, and no obstacle for who waits for an answer."""

import asyncio

from console.link.inbox import CAPACITY_BYTES, Inbox
from remote.protocol.frames import LogData

PIECE = 256 << 10


def piece(number: int) -> LogData:
    return LogData(job_id="talker", offset=number * PIECE, data=bytes(PIECE))


async def test_the_bytes_of_logs_that_wait_are_bounded_and_are_given_back() -> None:
    inbox = Inbox()
    pieces = CAPACITY_BYTES // PIECE
    for number in range(pieces):
        assert not inbox.is_full()
        await inbox.put(piece(number))
    assert inbox.is_full()
    for number in range(pieces):
        assert await inbox.get() == piece(number)
        assert not inbox.is_full()


async def test_a_full_inbox_is_read_past_as_soon_as_somebody_waits_for_an_answer() -> None:
    inbox = Inbox()
    for number in range(CAPACITY_BYTES // PIECE):
        await inbox.put(piece(number))
    asked = False
    waiting = asyncio.create_task(inbox.wait_for_room(unless=lambda: asked))
    await inbox.look_again()
    await asyncio.sleep(0)
    assert not waiting.done()
    asked = True
    await inbox.look_again()
    await waiting
