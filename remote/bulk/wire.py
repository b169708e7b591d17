"""The frames of a bulk transfer: kind (1 byte), length (4 bytes, big-endian), then at most 1 MiB.

The receiver begins (GO). The sender answers with the manifest, the receiver with the files that it lacks and from which byte on
(WANT), the sender with their bytes (DATA: file, offset, bytes), the receiver with DONE. Either end may say ERROR instead.
"""

import os
import select
import struct
from collections.abc import Iterator
from enum import Enum

import msgspec

from remote.errors import RoostError
from remote.protocol.codec import READY_MARKER
from remote.protocol.errors import ErrorCode, ErrorInfo

MAX_PAYLOAD_BYTES = 1 << 20

_HEADER = struct.Struct(">cI")
_PLACE = struct.Struct(">IQ")
_READ_BYTES = 1 << 18

DATA_BYTES = MAX_PAYLOAD_BYTES - _PLACE.size


class Kind(bytes, Enum):
    """What a frame is."""

    GO = b"G"
    MANIFEST = b"M"
    WANT = b"W"
    DATA = b"D"
    END = b"E"
    DONE = b"K"
    ERROR = b"X"


class HungUp(RoostError):
    """The stream ended before the transfer did."""

    code = ErrorCode.CONNECTION


class BadPeer(RoostError):
    """The other end sent what no honest one would."""

    code = ErrorCode.PROTOCOL


class PeerFailed(RoostError):
    """The other end's own error."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class Wire:
    """Two pipes as frames."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._buffer = bytearray()

    @classmethod
    def take_over_stdio(cls, *, announce: bool) -> "Wire":
        """Standard input and output of this process; stray prints go to standard error from now on."""
        source, sink = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, 0)
        os.dup2(2, 1)
        wire = cls(source, sink)
        if announce:
            wire._write(READY_MARKER + b"\n")
        return wire

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Write a frame; raises HungUp."""
        self._write(_HEADER.pack(kind.value, len(payload)) + payload)

    def send_data(self, index: int, offset: int, data: bytes) -> None:
        """Write bytes of a file."""
        self.send(Kind.DATA, _PLACE.pack(index, offset) + data)

    def send_all(self, kind: Kind, data: bytes) -> None:
        """Write `data` as frames of one kind and END."""
        step = MAX_PAYLOAD_BYTES // _PLACE.size * _PLACE.size
        for begin in range(0, len(data), step):
            self.send(kind, data[begin : begin + step])
        self.send(Kind.END)

    def receive(self) -> tuple[Kind, bytes]:
        """The next frame; raises HungUp, BadPeer, or PeerFailed for an ERROR."""
        kind, length = _HEADER.unpack(self._exactly(_HEADER.size))
        if length > MAX_PAYLOAD_BYTES:
            raise BadPeer(f"the other end announced a frame of {length} bytes; {MAX_PAYLOAD_BYTES} are the most")
        payload = self._exactly(length)
        try:
            known = Kind(kind)
        except ValueError:
            raise BadPeer(f"the other end sent a frame of unknown kind {kind!r}") from None
        if known is Kind.ERROR:
            raise PeerFailed(_error_in(payload))
        return known, payload

    def expect(self, kind: Kind) -> bytes:
        """The payload of the next frame, which must be of this kind."""
        found, payload = self.receive()
        if found is not kind:
            raise BadPeer(f"the other end sent {found.name} where {kind.name} was due")
        return payload

    def receive_all(self, kind: Kind, limit: int) -> bytes:
        """The payloads of frames of one kind up to END, at most `limit` bytes."""
        data = bytearray()
        while (frame := self.receive())[0] is not Kind.END:
            if frame[0] is not kind:
                raise BadPeer(f"the other end sent {frame[0].name} where {kind.name} was due")
            data += frame[1]
            if len(data) > limit:
                raise BadPeer(f"the other end sent more than {limit} bytes as {kind.name}")
        return bytes(data)

    def raise_if_told(self) -> None:
        """Raise what the other end has said by now instead of listening; returns when it has said nothing."""
        if self._buffer or select.select([self._source], [], [], 0)[0]:
            kind, _ = self.receive()
            raise BadPeer(f"the other end sent {kind.name} out of turn")

    def fail(self, error: ErrorInfo) -> None:
        """Tell the other end why this one gives up, and take what it still sends until it stops; never raises."""
        try:
            self.send(Kind.ERROR, msgspec.json.encode(error)[:MAX_PAYLOAD_BYTES])
            os.close(self._sink)
            while os.read(self._source, _READ_BYTES):
                pass
        except (OSError, HungUp):
            return

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            block = os.read(self._source, _READ_BYTES)
            if not block:
                raise HungUp(
                    "the connection ended before everything had arrived", hint="the same command goes on there"
                )
            self._buffer += block
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._sink, view) :]
        except (BrokenPipeError, ConnectionResetError):
            raise HungUp("the other end hung up", hint="the same command goes on there") from None


def pack_places(places: list[tuple[int, int]]) -> bytes:
    """Pairs of file and offset as bytes."""
    return b"".join(_PLACE.pack(*place) for place in places)


def unpack_places(data: bytes) -> Iterator[tuple[int, int]]:
    """The pairs of `pack_places`; raises BadPeer."""
    if len(data) % _PLACE.size:
        raise BadPeer("the other end sent half a place")
    return _PLACE.iter_unpack(data)


def unpack_data(payload: bytes) -> tuple[int, int, bytes]:
    """File, offset and bytes of a DATA frame; raises BadPeer."""
    if len(payload) <= _PLACE.size:
        raise BadPeer("the other end sent a DATA frame without bytes")
    return (*_PLACE.unpack_from(payload), payload[_PLACE.size :])


def _error_in(payload: bytes) -> ErrorInfo:
    try:
        return msgspec.json.decode(payload, type=ErrorInfo)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorInfo(code=ErrorCode.PROTOCOL, message="the other end failed and did not say why in words")
