"""NVIDIA's management library through nvidia-ml-py: the package, and what its errors mean.

Only the modules named `nvml*` and `occupancy` load it. A lost driver can block any call, and kill whoever makes it.
"""

from importlib import import_module
from typing import Any


def _load_package() -> Any:  # noqa: ANN401 - a module
    try:
        return import_module("pynvml")
    except ImportError:
        return None


pynvml = _load_package()
"""The package, None where it is not installed."""

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND = 3, 4, 13
INVALID_ARGUMENT, UNINITIALIZED, NO_DRIVER, NO_LIBRARY, TIMEOUT = 2, 1, 9, 12, 10
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 15, 16, 18

UNKNOWABLE = frozenset({NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND})
"""Answers that stay as they are while the driver is loaded."""

DEVICE_FAULTS = frozenset({UNINITIALIZED, NO_DRIVER, GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH})
"""Answers to one question that are about all of them."""

NO_PACKAGE = "the package nvidia-ml-py is not installed for this Python: GPUs are not read"
_THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
_RECOVERY_ACTIONS = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain peer-to-peer",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot",
}
_ANCESTORS = {
    0: "same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "same host bridge",
    40: "same NUMA node",
    50: "across NUMA nodes",
}
_PEER_TO_PEER = {
    0: "ok",
    1: "not supported by the chipset",
    2: "not supported by the device",
    3: "not supported by the topology",
    4: "disabled in the driver's settings",
    5: "not supported",
}


def throttle_reasons(bits: int | None) -> list[str]:
    """Why a device runs below its clocks; idleness and settings of a person are no reasons."""
    return [reason for bit, reason in _THROTTLE_REASONS.items() if bits & bit] if bits else []


def recovery_text(action: int) -> str:
    """NVML's advice on a device."""
    return _RECOVERY_ACTIONS.get(action, f"recovery action {action}")


def ancestor_text(level: int) -> str:
    """What two devices have in common in the machine."""
    return _ANCESTORS.get(level, f"level {level}")


def peer_text(status: int) -> str:
    """Whether a device may read the memory of another."""
    return _PEER_TO_PEER.get(status, "unknown")


def why_unreachable(error: Exception) -> str:
    """Why NVML as a whole does not answer, in a sentence."""
    code = error_code(error)
    if code == NO_LIBRARY:
        return "no NVIDIA driver is installed on this host (libnvidia-ml.so.1 is missing)"
    if code == NO_DRIVER:
        return "the NVIDIA kernel module is not loaded; `nvidia-smi` on the host says more"
    if code == VERSION_MISMATCH:
        return f"the driver was updated: reboot, or load its kernel module anew; NVML does not fit the one that is loaded ({error})"
    return f"NVML does not answer ({error}); `nvidia-smi` on the host says more"


def device_error_text(error: Exception) -> str:
    """Why one device does not answer, in a few words."""
    code = error_code(error)
    if code == GPU_IS_LOST:
        return "the GPU is lost, off its bus"
    if code == RESET_REQUIRED:
        return "the GPU requires a reset"
    return f"{error}"


def error_code(error: Exception) -> int | None:
    """NVML's own number of an error."""
    return getattr(error, "value", None)
