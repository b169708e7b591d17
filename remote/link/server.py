"""The host's end of a console's connection: calls come in on standard input, answers and events go out on standard output.

It holds nothing that matters: when the console hangs up it ends, and every job goes on.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import msgspec

from remote.errors import RoostError
from remote.jobs.records import UnreadableRecord
from remote.jobs.store import JobStore
from remote.link.channel import Channel
from remote.link.releases import remove_unused_releases, use_release
from remote.link.requests import Desk
from remote.link.streams import Streams
from remote.link.telemetry import TelemetrySource
from remote.protocol.codec import ProtocolError, decode_call
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Answer, Call, Failure
from remote.protocol.requests import Done, Hello, JobList, Watch
from remote.protocol.version import PROTOCOL_VERSION

_MAX_CALLS = 16
_THREADS = 32
_log = logging.getLogger(__name__)


class _Numbered(msgspec.Struct):
    """The number of a call whose request cannot be understood."""

    call_id: int = 0


class LinkServer:
    """One console's connection."""

    def __init__(self, store: JobStore, channel: Channel, actor: str) -> None:
        telemetry = TelemetrySource(store)
        self._channel = channel
        self._desk = Desk(store, telemetry, actor)
        self._streams = Streams(store, channel, telemetry)
        self._room = asyncio.Semaphore(_MAX_CALLS)
        self._calls: set[asyncio.Task[None]] = set()
        self._greeted = False

    async def serve(self) -> None:
        """Answer until the console hangs up or says something that no console of this protocol would."""
        lines = self._channel.lines()
        try:
            async for line in lines:
                if line.strip() and not await self._take(line):
                    return
        except ProtocolError as error:
            await self._fail(0, _protocol_fault(str(error)))
        except ConnectionError:
            return

    async def _take(self, line: bytes) -> bool:
        """Take one line; says whether the link goes on."""
        try:
            call = decode_call(line)
        except ProtocolError as error:
            await self._fail(_number_of(line), _protocol_fault(str(error)))
            return self._greeted
        if not self._greeted:
            return await self._greet(call)
        if isinstance(call.request, Watch):  # in its turn: of two watches the later one holds
            await self._watch(call, call.request)
            return True
        await self._room.acquire()
        task = asyncio.create_task(self._answer(call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return True

    async def _greet(self, call: Call) -> bool:
        hello = call.request
        if not isinstance(hello, Hello):
            await self._fail(call.call_id, _protocol_fault("the first request of a link is hello"))
            return False
        if hello.protocol != PROTOCOL_VERSION:
            sentence = f"the console speaks protocol {hello.protocol}, this host's release protocol {PROTOCOL_VERSION}"
            hint = "Connect again so that the console brings its own release to the host."
            await self._fail(call.call_id, _protocol_fault(sentence, hint=hint))
            return False
        self._desk.actor = hello.actor or self._desk.actor
        self._greeted = True
        await self._channel.send(Answer(call_id=call.call_id, reply=await asyncio.to_thread(self._desk.answer, hello)))
        self._streams.start()
        return True

    async def _watch(self, call: Call, watch: Watch) -> None:
        try:
            self._streams.replace(watch)
        except RoostError as error:
            await self._fail(call.call_id, error.info)
        else:
            await self._channel.send(Answer(call_id=call.call_id, reply=Done()))

    async def _answer(self, call: Call) -> None:
        try:
            reply = await asyncio.to_thread(self._desk.answer, call.request)
            await self._channel.send(Answer(call_id=call.call_id, reply=reply))
            if isinstance(reply, JobList):
                self._streams.note_told(reply.jobs)
        except ConnectionError:
            return
        except RoostError as error:
            await self._fail(call.call_id, error.info)
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not take the link down
            _log.exception("call %d failed: %s", call.call_id, type(call.request).__name__)
            sentence = f"{type(error).__name__} on the host while answering {type(call.request).__name__}: {error}"
            await self._fail(call.call_id, ErrorInfo(code=ErrorCode.FAILED, message=sentence))
        finally:
            self._room.release()

    async def _fail(self, call_id: int, error: ErrorInfo) -> None:
        try:
            await self._channel.send(Failure(call_id=call_id, error=error))
        except ConnectionError:
            _log.warning("nobody there to be told: %s", error.message)


def _number_of(line: bytes) -> int:
    try:
        return msgspec.json.decode(line, type=_Numbered).call_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0


def _protocol_fault(sentence: str, hint: str | None = None) -> ErrorInfo:
    return ErrorInfo(code=ErrorCode.PROTOCOL, message=sentence, hint=hint)


def _tidy(store: JobStore) -> None:
    try:
        remove_unused_releases(store)
    except (OSError, UnreadableRecord) as error:
        _log.warning("old releases could not be removed: %s", error)


async def _run(store: JobStore, actor: str) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    channel = await Channel.take_over_stdio(store.secrets.cover)
    tidying = asyncio.create_task(asyncio.to_thread(_tidy, store))
    serving = asyncio.create_task(LinkServer(store, channel, actor).serve())
    hung_up = asyncio.create_task(channel.broken.wait())
    await asyncio.wait({serving, hung_up}, return_when=asyncio.FIRST_COMPLETED)
    tidying.cancel()
    if serving.done():
        serving.result()


def run_link(store: JobStore, actor: str) -> None:
    """Serve one console on this process's standard input and output until it hangs up."""
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    with use_release(store):
        asyncio.run(_run(store, actor))
