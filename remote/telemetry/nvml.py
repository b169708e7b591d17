"""NVIDIA devices through NVML (nvidia-ml-py); the only module that loads pynvml. A lost driver can block any call in here."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar

from remote.protocol.telemetry import GpuSample

_T = TypeVar("_T")


def _load_package() -> Any:  # noqa: ANN401 - a module
    try:
        return import_module("pynvml")
    except ImportError:
        return None


pynvml = _load_package()
"""The package, None where it is not installed."""

_NOT_SUPPORTED, _FUNCTION_NOT_FOUND = 3, 13
_NO_LIBRARY, _NO_DRIVER = 12, 9
NO_PACKAGE = "the package nvidia-ml-py is not installed for this Python: GPUs are not read"
_THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


class GpuReading(NamedTuple):
    """All devices at one moment; `detail` says in a sentence why there are none."""

    source: Literal["nvml", "none", "error"]
    detail: str
    gpus: list[GpuSample]


class _Identity(NamedTuple):
    name: str
    uuid: str


class NvmlReader:
    """Reads the fast set of every device; what a device does not support is asked once and stays None."""

    def __init__(self) -> None:
        self._initialized = False
        self._identities: dict[int, _Identity] = {}
        self._unsupported: set[tuple[str, str]] = set()

    def read(self) -> GpuReading:
        """A reading of now; never raises for a fault of the driver."""
        if pynvml is None:
            return GpuReading("none", NO_PACKAGE, [])
        try:
            if not self._initialized:
                pynvml.nvmlInit()
                self._initialized = True
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            self._initialized = False
            return GpuReading("none" if error_code(error) == _NO_LIBRARY else "error", why_unreachable(error), [])
        detail = "" if count else "NVML answers and knows no device"
        return GpuReading("nvml", detail, [self._sample(index) for index in range(count)])

    def _sample(self, index: int) -> GpuSample:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            identity = self._identify(index, handle)
            return self._fast_set(index, identity, handle)
        except pynvml.NVMLError as error:
            return lost_gpu(index, self._identities.get(index, _Identity("unknown device", "")), str(error))

    def _identify(self, index: int, handle: object) -> _Identity:
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        known = self._identities.get(index)
        if known is None or known.uuid != uuid:
            known = self._identities[index] = _Identity(pynvml.nvmlDeviceGetName(handle), uuid)
        return known

    def _fast_set(self, index: int, identity: _Identity, handle: object) -> GpuSample:
        def ask(what: str, call: Callable[[], _T]) -> _T | None:
            return self._ask((identity.uuid, what), call)

        utilization = ask("utilization", lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
        memory = ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
        power = ask("power", lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
        limit = ask("power limit", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        celsius = ask("temperature", lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
        clock = ask("clock", lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        reasons = ask("throttling", lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        return GpuSample(
            gpu_index=index,
            name=identity.name,
            uuid=identity.uuid,
            gpu_utilization=None if utilization is None else float(utilization.gpu) / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_watts=scaled(power, 1e-3),
            power_limit_watts=scaled(limit, 1e-3),
            temperature_celsius=scaled(celsius, 1.0),
            sm_clock_hz=scaled(clock, 1e6),
            throttle_reasons=throttle_reasons(reasons),
        )

    def _ask(self, question: tuple[str, str], call: Callable[[], _T]) -> _T | None:
        if question in self._unsupported:
            return None
        try:
            return call()
        except pynvml.NVMLError as error:
            if error_code(error) not in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
                raise
            self._unsupported.add(question)
            return None


def scaled(value: float | None, unit: float) -> float | None:
    """`value` in another unit; None stays None."""
    return None if value is None else value * unit


def throttle_reasons(bits: int | None) -> list[str]:
    """Why a device runs below its clocks; idleness and settings of a person are no reasons."""
    return [] if bits is None else [reason for bit, reason in _THROTTLE_REASONS.items() if bits & bit]


def lost_gpu(index: int, identity: tuple[str, str], error: str) -> GpuSample:
    """A device that is known to be there and does not answer."""
    name, uuid = identity
    return GpuSample(
        gpu_index=index,
        name=name,
        uuid=uuid,
        gpu_utilization=None,
        memory_used_bytes=None,
        memory_total_bytes=None,
        power_watts=None,
        power_limit_watts=None,
        temperature_celsius=None,
        sm_clock_hz=None,
        throttle_reasons=[],
        error=error,
    )


def why_unreachable(error: Exception) -> str:
    """Why NVML as a whole does not answer, in a sentence."""
    if error_code(error) == _NO_LIBRARY:
        return "no NVIDIA driver is installed on this host (libnvidia-ml.so.1 is missing)"
    if error_code(error) == _NO_DRIVER:
        return "the NVIDIA kernel module is not loaded; `nvidia-smi` on the host says more"
    return f"NVML does not answer ({error}); `nvidia-smi` on the host says more"


def error_code(error: Exception) -> int | None:
    """NVML's own number of an error."""
    return getattr(error, "value", None)
