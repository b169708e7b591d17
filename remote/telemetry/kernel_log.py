"""What the NVIDIA driver tells the kernel's log: XIDs, and devices that have fallen off the bus."""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

_REMEMBERED_S = 3600.0
_MOST_RECORDS = 100_000
_BLOCK_BYTES = 1 << 14
_LONGEST_TEXT = 300
_BUS = r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})"
_XID = re.compile(rf"NVRM: Xid \({_BUS}[^)]*\): (\d+),?\s*(.*)")
_FALLEN = re.compile(rf"NVRM: .*?{_BUS}.*fallen off the bus")

BusAddress = tuple[int, int, int]
"""PCI domain, bus and device."""


class KernelFault(NamedTuple):
    """A fault that the driver told the kernel's log `at` (seconds since the epoch); `xid` None where it gave no number."""

    at: float
    bus: BusAddress
    xid: int | None
    text: str


class KernelRecord(NamedTuple):
    """A record of /dev/kmsg; `at_us` is microseconds of the kernel's own clock, which began when it did."""

    sequence: int
    at_us: int
    text: str


def parse_record(line: str) -> KernelRecord | None:
    """A line of /dev/kmsg, None for one that continues another."""
    head, found, text = line.partition(";")
    fields = head.split(",")
    if not found or len(fields) < 3 or not (fields[1].isdigit() and fields[2].isdigit()):
        return None
    return KernelRecord(int(fields[1]), int(fields[2]), text)


def parse_fault(text: str, at: float) -> KernelFault | None:
    """What a record says of a device, None for all others."""
    if found := _XID.search(text):
        return KernelFault(at, _address(found), int(found[4]), text[found.start() :][:_LONGEST_TEXT].strip())
    if found := _FALLEN.search(text):
        return KernelFault(at, _address(found), None, text[found.start() :][:_LONGEST_TEXT].strip())
    return None


def _address(found: "re.Match[str]") -> BusAddress:
    return int(found[1], 16), int(found[2], 16), int(found[3], 16)


class KernelLog:
    """Reads the records of the last hour and then the new ones; never blocks. `denied` says why it may not be read."""

    def __init__(self, path: Path, after: int = -1) -> None:
        self.denied: str | None = None
        self.last_sequence = after
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            self.denied = "the kernel log may not be read by this user"
        except OSError as error:
            self.denied = f"the kernel log cannot be read here ({error.strerror})"

    def read(self) -> list[KernelFault]:
        """The faults that are new; an XID before a sentence on the same."""
        now, clock = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
        faults = []
        for block in self._blocks():
            if b"NVRM" not in block:
                continue
            for line in block.decode(errors="replace").splitlines():
                record = parse_record(line)
                if record is None or record.sequence <= self.last_sequence:
                    continue
                at = min(now, now - clock + record.at_us / 1e6)
                fault = parse_fault(record.text, round(at, 3))
                if fault is not None:
                    self.last_sequence = record.sequence
                    if now - at <= _REMEMBERED_S:
                        faults.append(fault)
        return sorted(faults, key=lambda fault: fault.xid is None)

    def _blocks(self) -> list[bytes]:
        """One record each of /dev/kmsg; of an ordinary file, what has come to it."""
        blocks: list[bytes] = []
        while self._descriptor is not None and len(blocks) < _MOST_RECORDS:
            try:
                block = os.read(self._descriptor, _BLOCK_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before they were read: the next read goes on after them
                continue
            except OSError as error:
                self._close(f"the kernel log may not be read by this user ({error.strerror})")
                break
            if not block:
                break
            if b"NVRM" in block:
                blocks.append(block)
        return blocks

    def _close(self, reason: str) -> None:
        self.denied = reason
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
