"""One device through NVML: the figures of every second and those that change slowly."""

import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from remote.protocol.telemetry import GpuHealth, GpuProcess, GpuSample
from remote.telemetry.gpu_reading import lost_gpu
from remote.telemetry.nvml import (
    DEVICE_FAULTS,
    INVALID_ARGUMENT,
    UNKNOWABLE,
    device_error_text,
    error_code,
    pynvml,
    recovery_text,
    throttle_reasons,
)
from remote.telemetry.rates import CounterRates

_PCIE_TX, _PCIE_RX, _NVLINK_TX, _NVLINK_RX, _RECOVERY = 197, 198, 138, 139, 230
_ALL_LINKS = 0xFFFFFFFF
_MOST_LINKS = 36
_CORRECTED, _UNCORRECTED, _SINCE_DRIVER_LOAD = 0, 1, 0
_VALUE_MEMBERS = {0: "dVal", 2: "ulVal", 3: "ullVal", 4: "sllVal"}
"""Of counters; one of 32 bits may wrap several times a second, which leaves nothing to tell."""

_PERSISTENT = UNKNOWABLE | {INVALID_ARGUMENT}
"""What an older driver answers about a field that it does not know."""


class DeviceReader:
    """Reads one device; what it does not support is asked once and stays None. A call may hang or kill the process."""

    def __init__(self, index: int, last: GpuSample | None = None) -> None:
        self.index = index
        self.error_since: float | None = None
        self._name, self._uuid = ("", "") if last is None else (last.name, last.uuid)
        self._sampled_at = None if last is None else last.sampled_at
        self._handle: Any = None
        self._calls: dict[str, Callable[[], Any]] = {}
        self._unsupported: set[str] = set()
        self._fields: list[Any] = []
        self._fields_are_known = False
        self._rates = CounterRates()
        self._health: GpuHealth | None = None

    def read(self, *, with_health: bool) -> GpuSample:
        """A reading of now, `with_health` or with that of before; never raises for a fault of the driver."""
        try:
            if self._handle is None:
                self._open()
            sample = self._read(with_health=with_health)
        except pynvml.NVMLError as error:
            self._handle = None
            self.error_since = self.error_since or time.monotonic()
            text = device_error_text(error)
            return lost_gpu(self.index, (self._name, self._uuid), text, sampled_at=self._sampled_at)
        self.error_since = None
        return sample

    def _open(self) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        if uuid != self._uuid or not self._fields_are_known:
            self._uuid, self._name = uuid, pynvml.nvmlDeviceGetName(handle)
            self._unsupported = set()
            self._fields, self._fields_are_known = [_PCIE_TX, _PCIE_RX], True
            self._health = None
        self._calls = {what: call for what, call in _questions(handle).items() if what not in self._unsupported}
        self._rates = CounterRates()
        self._handle = handle

    def _read(self, *, with_health: bool) -> GpuSample:
        ask = self._ask
        utilization, memory = ask("utilization"), ask("memory") or ask("old memory")
        power, celsius = ask("power", required=utilization is None and memory is None), ask("temperature")
        rates = self._read_rates()
        if with_health or self._health is None:
            self._health = self._read_health()
        self._sampled_at = round(time.time(), 3)
        return GpuSample(
            gpu_index=self.index,
            name=self._name,
            uuid=self._uuid,
            gpu_utilization=None if utilization is None else utilization.gpu / 100,
            memory_used_bytes=None if memory is None else memory.used,
            memory_total_bytes=None if memory is None else memory.total,
            power_watts=_in_unit(power, 1e3),
            power_limit_watts=_in_unit(ask("power limit"), 1e3),
            temperature_celsius=celsius,
            sm_clock_hz=_times(ask("clock"), 1_000_000),
            throttle_reasons=throttle_reasons(ask("throttling")),
            sampled_at=self._sampled_at,
            memory_utilization=None if utilization is None else utilization.memory / 100,
            temperature_margin_celsius=ask("margin"),
            memory_clock_hz=_times(ask("memory clock"), 1_000_000),
            energy_joules=_in_unit(ask("energy"), 1e3),
            pcie_rx_bytes_per_s=_whole(rates.get(_PCIE_RX)),
            pcie_tx_bytes_per_s=_whole(rates.get(_PCIE_TX)),
            nvlink_rx_bytes_per_s=_whole(rates.get(_NVLINK_RX)),
            nvlink_tx_bytes_per_s=_whole(rates.get(_NVLINK_TX)),
            health=self._health,
        )

    def _ask(self, what: str, *, required: bool = False) -> Any:  # noqa: ANN401 - as NVML answers it
        """The answer, None where there is none; raises NVMLError for a fault of the device and of a required question."""
        call = self._calls.get(what)
        if call is None:
            return None
        try:
            return call()
        except pynvml.NVMLError as error:
            code = error_code(error)
            if code in UNKNOWABLE:
                self._give_up(what)
            elif required or code in DEVICE_FAULTS:
                raise
            return None

    def _give_up(self, what: str) -> None:
        self._unsupported.add(what)
        self._calls.pop(what, None)

    def _read_rates(self) -> dict[Hashable, float | None]:
        if not self._fields:
            return {}
        values = self._read_fields(self._fields)
        self._fields = [field for field in self._fields if _field_id(field) in values]
        for field in (_NVLINK_TX, _NVLINK_RX):
            kib = values.get(field)
            values[field] = None if kib is None else kib * 1024
        return self._rates.advance(time.monotonic(), values)

    def _read_fields(self, fields: list[Any]) -> dict[Hashable, float | None]:
        """The answers by field, None for those that failed this time; without those that the driver will never give."""
        try:
            answers = pynvml.nvmlDeviceGetFieldValues(self._handle, fields)
        except pynvml.NVMLError as error:
            if error_code(error) in DEVICE_FAULTS:
                raise
            return {} if error_code(error) in _PERSISTENT else dict.fromkeys(map(_field_id, fields))
        found: dict[Hashable, float | None] = {}
        for answer in answers:
            code = answer.nvmlReturn
            if code == 0:
                member = "uiVal" if answer.fieldId == _RECOVERY else _VALUE_MEMBERS.get(answer.valueType)
                found[answer.fieldId] = None if member is None else getattr(answer.value, member)
            elif code not in _PERSISTENT:
                found[answer.fieldId] = None
        return found

    def _read_health(self) -> GpuHealth:
        ask = self._ask
        rows, recovery, processes = ask("remapped rows"), self._read_recovery(), ask("processes")
        return GpuHealth(
            sampled_at=round(time.time(), 3),
            pcie_generation=ask("PCIe generation"),
            pcie_generation_max=ask("PCIe generation at most"),
            pcie_width=ask("PCIe width"),
            pcie_width_max=ask("PCIe width at most"),
            pcie_replays=ask("PCIe replays"),
            ecc_corrected=ask("corrected"),
            ecc_uncorrected=ask("uncorrected"),
            remapped_rows_corrected=None if rows is None else rows[0],
            remapped_rows_uncorrected=None if rows is None else rows[1],
            remapping_pending=None if rows is None else bool(rows[2]),
            remapping_failed=None if rows is None else bool(rows[3]),
            recovery_action=recovery,
            nvlinks_active=self._count_links(),
            processes=None
            if processes is None
            else [GpuProcess(pid=process.pid, memory_bytes=process.usedGpuMemory) for process in processes],
        )

    def _read_recovery(self) -> str | None:
        if "recovery" not in self._calls:
            return None
        found = self._read_fields([_RECOVERY])
        if _RECOVERY not in found:
            self._give_up("recovery")
        action = found.get(_RECOVERY)
        return None if action is None else recovery_text(int(action))

    def _count_links(self) -> int | None:
        """Active NVLinks; where there are some their throughput is read from now on."""
        if "links" not in self._calls:
            return None
        active: int | None = None
        for link in range(_MOST_LINKS):
            try:
                state = pynvml.nvmlDeviceGetNvLinkState(self._handle, link)
            except pynvml.NVMLError as error:
                if error_code(error) in DEVICE_FAULTS:
                    raise
                break
            active = (active or 0) + (state == 1)
        if active is None:
            self._give_up("links")
        elif active and _NVLINK_TX not in map(_field_id, self._fields):
            self._fields += [(_NVLINK_TX, _ALL_LINKS), (_NVLINK_RX, _ALL_LINKS)]
        return active


def _questions(handle: object) -> dict[str, Callable[[], Any]]:
    ask = pynvml
    return {
        what: partial(call, handle, *arguments)
        for what, call, *arguments in (
            ("utilization", ask.nvmlDeviceGetUtilizationRates),
            ("memory", ask.nvmlDeviceGetMemoryInfo, ask.nvmlMemory_v2),
            ("old memory", ask.nvmlDeviceGetMemoryInfo),
            ("power", ask.nvmlDeviceGetPowerUsage),
            ("power limit", ask.nvmlDeviceGetEnforcedPowerLimit),
            ("temperature", ask.nvmlDeviceGetTemperature, ask.NVML_TEMPERATURE_GPU),
            ("clock", ask.nvmlDeviceGetClockInfo, ask.NVML_CLOCK_SM),
            ("memory clock", ask.nvmlDeviceGetClockInfo, ask.NVML_CLOCK_MEM),
            ("throttling", ask.nvmlDeviceGetCurrentClocksEventReasons),
            ("margin", ask.nvmlDeviceGetMarginTemperature),
            ("energy", ask.nvmlDeviceGetTotalEnergyConsumption),
            ("PCIe generation", ask.nvmlDeviceGetCurrPcieLinkGeneration),
            ("PCIe generation at most", ask.nvmlDeviceGetMaxPcieLinkGeneration),
            ("PCIe width", ask.nvmlDeviceGetCurrPcieLinkWidth),
            ("PCIe width at most", ask.nvmlDeviceGetMaxPcieLinkWidth),
            ("PCIe replays", ask.nvmlDeviceGetPcieReplayCounter),
            ("corrected", ask.nvmlDeviceGetTotalEccErrors, _CORRECTED, _SINCE_DRIVER_LOAD),
            ("uncorrected", ask.nvmlDeviceGetTotalEccErrors, _UNCORRECTED, _SINCE_DRIVER_LOAD),
            ("remapped rows", ask.nvmlDeviceGetRemappedRows),
            ("processes", ask.nvmlDeviceGetComputeRunningProcesses),
            ("recovery", ask.nvmlDeviceGetFieldValues),
            ("links", ask.nvmlDeviceGetNvLinkState),
        )
    }


def _field_id(field: int | tuple[int, int]) -> int:
    return field if isinstance(field, int) else field[0]


def _in_unit(value: int | None, unit: float) -> float | None:
    return None if value is None else round(value / unit, 1)


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _whole(value: float | None) -> float | None:
    return None if value is None else round(value)
