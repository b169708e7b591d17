"""Hardware events as NVML reports them, and how the devices are connected: asked in a thread of its own, for each may hang."""

import ctypes
import threading
import time
from itertools import combinations
from queue import Empty, SimpleQueue
from typing import Any

from remote.protocol.telemetry import GpuEvent, GpuPath, GpuTopology
from remote.telemetry.kernel_log import BusAddress, KernelFault
from remote.telemetry.nvml import GPU_IS_LOST, TIMEOUT, ancestor_text, error_code, peer_text, pynvml
from remote.telemetry.xid import xid_text

_DOUBLE_BIT, _XID = 0x2, 0x8
_WAIT_MS = 30_000
_PAUSE_S = 5.0


class EventWatch:
    """Waits for events of the devices; `topology` and `addresses` are there once they were asked for."""

    def __init__(self, count: int, log_denied: str | None) -> None:
        self.topology: GpuTopology | None = None
        self.addresses: dict[BusAddress, int] = {}
        self._count = count
        self._log_denied = log_denied
        self._indices: dict[int, int] = {}
        self._events: SimpleQueue[GpuEvent] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="roost-nvml-events", daemon=True)
        self._thread.start()

    def take(self) -> list[GpuEvent]:
        """The events since the last call."""
        found = []
        try:
            while True:
                found.append(self._events.get_nowait())
        except Empty:
            return found

    def of_kernel(self, fault: KernelFault) -> GpuEvent:
        """A fault of the kernel's log as an event of its device."""
        return GpuEvent(
            at=fault.at,
            gpu_index=self.addresses.get(fault.bus),
            xid=fault.xid,
            text=fault.text if fault.xid is None else f"{xid_text(fault.xid)} ({fault.text})",
            source="kernel_log",
        )

    def _run(self) -> None:
        handles = self._open()
        events, why_not = _register(handles)
        self.topology = _topology(handles, self._events_from(why_not))
        while events is not None:
            try:
                event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error_code(error) == TIMEOUT:
                    continue
                if error_code(error) != GPU_IS_LOST:
                    return
                time.sleep(_PAUSE_S)
            else:
                self._events.put(self._event_of(event))

    def _open(self) -> list[Any]:
        handles: list[Any] = []
        for index in range(self._count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                pci = pynvml.nvmlDeviceGetPciInfo(handle)
            except pynvml.NVMLError:
                handles.append(None)
                continue
            handles.append(handle)
            self._indices[_pointer(handle)] = index
            self.addresses[pci.domain, pci.bus, pci.device] = index
        return handles

    def _events_from(self, why_not: str | None) -> str:
        if why_not is None:
            return "NVML and the kernel log" if self._log_denied is None else f"NVML; {self._log_denied}"
        if self._log_denied is None:
            return f"the kernel log; {why_not}"
        return f"nothing: {why_not}, and {self._log_denied}"

    def _event_of(self, event: Any) -> GpuEvent:  # noqa: ANN401 - NVML's structure
        is_xid = event.eventType == _XID
        return GpuEvent(
            at=round(time.time(), 3),
            gpu_index=self._indices.get(_pointer(event.device)),
            xid=int(event.eventData) if is_xid else None,
            text=xid_text(int(event.eventData)) if is_xid else "uncorrectable memory error (double bit)",
            source="nvml",
        )


def _pointer(handle: Any) -> int:  # noqa: ANN401 - NVML's handle
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _register(handles: list[Any]) -> tuple[Any, str | None]:
    """The set of events, or None and why there is none."""
    try:
        events = pynvml.nvmlEventSetCreate()
    except pynvml.NVMLError as error:
        return None, f"this driver reports no events ({error})"
    complaint, registered = "NVML knows no device", 0
    for handle in handles:
        try:
            if handle is not None:
                pynvml.nvmlDeviceRegisterEvents(handle, _XID | _DOUBLE_BIT, events)
                registered += 1
        except pynvml.NVMLError as error:
            complaint = f"NVML reports no events here ({error})"
    return (events, None) if registered else (None, complaint)


def _topology(handles: list[Any], events_from: str) -> GpuTopology:
    known = [(index, handle) for index, handle in enumerate(handles) if handle is not None]
    return GpuTopology(
        driver_version=_ask_text(pynvml.nvmlSystemGetDriverVersion),
        cuda_version=_cuda_version(),
        paths=[_path(first, second) for first, second in combinations(known, 2)],
        events_from=events_from,
    )


def _path(first: tuple[int, Any], second: tuple[int, Any]) -> GpuPath:
    try:
        ancestor = ancestor_text(pynvml.nvmlDeviceGetTopologyCommonAncestor(first[1], second[1]))
    except pynvml.NVMLError:
        ancestor = "unknown"
    try:
        peer = peer_text(pynvml.nvmlDeviceGetP2PStatus(first[1], second[1], 0))
    except pynvml.NVMLError:
        peer = "unknown"
    return GpuPath(first=first[0], second=second[0], ancestor=ancestor, peer_to_peer=peer)


def _ask_text(call: Any) -> str:  # noqa: ANN401 - a function of NVML
    try:
        return str(call())
    except pynvml.NVMLError:
        return "unknown"


def _cuda_version() -> str:
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except pynvml.NVMLError:
        return "unknown"
    return f"{version // 1000}.{version % 1000 // 10}"
