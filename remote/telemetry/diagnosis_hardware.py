"""What the devices and their driver report of themselves; pure rules."""

from collections.abc import Iterator
from typing import NamedTuple

from remote.protocol.telemetry import GpuEvent, GpuHealth, TelemetrySample
from remote.telemetry.diagnosis_holding import Finding, Severity
from remote.telemetry.diagnosis_window import BUSY, GpuWindow, Window
from remote.telemetry.figures import joined
from remote.telemetry.xid import Meaning, meaning_of

ERROR_HOLD_S = 3.0
"""One call of a driver may fail; three seconds of them are a fault."""

FIRST_ANSWER_S = 60.0

REMEMBER_S = 3600.0
"""An event is one moment; whoever looks within the hour learns of it."""

CORRECTED_IN_10_MIN = 100
"""Corrected errors are what ECC is for; this many in ten minutes come before uncorrectable ones."""

REPLAYS_A_MINUTE = 8
"""DCGM's own limit for PCIe replays."""

LINK_HOLD_S, GROWTH_RELEASE_S = 30.0, 600.0

_RESET = "stop what uses it, then `nvidia-smi -r -i {index}` as root; reboot the host if that is refused"


class _Event(NamedTuple):
    first_at: float
    last_s: float
    count: int
    event: GpuEvent


class EventMemory:
    """Events of the driver by device and XID; a device that was reset has no past, nor has any under a driver that was loaded anew."""

    def __init__(self) -> None:
        self._events: dict[tuple[int | None, int | str], _Event] = {}
        self._energy: dict[int, float] = {}

    def advance(self, sample: TelemetrySample, clock_s: float) -> None:
        """Take the events of now."""
        anew = self._counted_anew(sample)
        if anew:
            self._events = {key: seen for key, seen in self._events.items() if key[0] not in anew}
        for event in sample.gpu_events:
            age_s = max(0.0, sample.sampled_at - event.at)
            key = (event.gpu_index, event.text if event.xid is None else event.xid)
            before = self._events.get(key)
            first_at = event.at if before is None else before.first_at
            self._events[key] = _Event(first_at, clock_s - age_s, 1 if before is None else before.count + 1, event)
        if self._events:
            self._events = {key: seen for key, seen in self._events.items() if clock_s - seen.last_s <= REMEMBER_S}

    def _counted_anew(self, sample: TelemetrySample) -> set[int]:
        """Devices that were reset, or whose driver was loaded anew: from then on their energy is counted."""
        before = self._energy
        now = {gpu.gpu_index: gpu.energy_joules for gpu in sample.gpus if gpu.energy_joules is not None}
        self._energy = {**before, **now}
        return {index for index, energy in now.items() if energy < before.get(index, 0.0)}

    def findings(self) -> Iterator[Finding]:
        """What is remembered."""
        for (index, what), seen in self._events.items():
            event = seen.event
            meaning = (
                Meaning("", "warning", "`dmesg | tail` on the host") if event.xid is None else meaning_of(event.xid)
            )
            subject = "NVIDIA driver" if index is None else f"GPU {index}"
            name = event.text if event.xid is None else f"XID {event.xid}, {meaning.text}"
            yield Finding(
                code="hardware",
                severity=meaning.severity,
                subject=subject,
                summary=f"{subject} reported {name}",
                evidence=joined(
                    event.text, f"seen {seen.count} times" if seen.count > 1 else None, _SOURCES[event.source]
                ),
                advice=meaning.advice.replace("GPU`", f"{index}`").replace("-i GPU", f"-i {index}"),
                kind=f"event {what}",
                release_s=0.0,
                at=seen.first_at,
            )


_SOURCES = {"nvml": "told by NVML", "kernel_log": "from the kernel's log"}


def hardware(window: Window) -> Iterator[Finding]:
    """Faults that the devices have now, or had within the time that they stay told."""
    yield from _errors(window)
    for gpu in window.gpus.values():
        if gpu.sample.health is not None:
            yield from _health(gpu, gpu.sample.health)


def _errors(window: Window) -> Iterator[Finding]:
    """Devices that do not answer; a driver that answers for none of them is one fault, not many."""
    sample = window.sample
    broken = [gpu for gpu in window.gpus.values() if gpu.sample.error is not None]
    if sample.gpu_source == "error" or len(broken) == len(window.gpus) > 1:
        owned = {gpu.sample.owner_job_id for gpu in window.gpus.values()} - {None}
        yield Finding(
            code="hardware",
            severity="error" if window.gpus else "warning",
            subject="NVIDIA driver",
            summary="the NVIDIA driver does not answer, so no device can be read",
            evidence=joined(
                sample.gpu_detail or (broken[0].sample.error if broken else None),
                f"{len(window.gpus)} devices known, {len(owned)} jobs on them",
            ),
            advice="`timeout 10 nvidia-smi` and `dmesg | tail` on the host; a mismatch of versions needs `rmmod` and `modprobe` "
            "of the nvidia modules or a reboot",
            kind="driver",
            hold_s=_patience_s(broken),
        )
        return
    for gpu in broken:
        error = gpu.sample.error or ""
        yield _fault(
            gpu, "error", "device", f"does not answer: {error}", error, _error_advice(gpu, error), _patience_s([gpu])
        )


def _patience_s(broken: list[GpuWindow]) -> float:
    """How long the fault must last; devices that no process kept awake take seconds each for their first answer."""
    is_first = bool(broken) and all((gpu.sample.error or "").endswith(" yet") for gpu in broken)
    return FIRST_ANSWER_S if is_first else ERROR_HOLD_S


def _error_advice(gpu: GpuWindow, error: str) -> str:
    words = error.lower()
    index = gpu.sample.gpu_index
    if "lost" in words or "bus" in words:
        return (
            "its jobs cannot go on: stop them, reboot the host, then check power, cooling and seating if it comes back"
        )
    if "reset" in words:
        return _RESET.format(index=index)
    return f"`timeout 10 nvidia-smi -i {index}` and `dmesg | grep -i nvrm` on the host say more; reset the device or reboot"


def _health(gpu: GpuWindow, health: GpuHealth) -> Iterator[Finding]:
    index = gpu.sample.gpu_index
    reset = _RESET.format(index=index)
    uncorrected, corrected = gpu.ecc_uncorrected.amount(), gpu.ecc_corrected.amount()
    if uncorrected > 0:
        evidence = f"{uncorrected} within the hour, {health.ecc_uncorrected} since the driver was loaded"
        yield _fault(
            gpu,
            "error",
            "ecc uncorrected",
            "had uncorrectable memory errors",
            evidence,
            f"results since then may be wrong; {reset}, then restart its jobs",
        )
    if corrected >= CORRECTED_IN_10_MIN:
        evidence = f"{corrected} within 10 minutes, {health.ecc_corrected} since the driver was loaded"
        yield _fault(
            gpu,
            "warning",
            "ecc corrected",
            "corrects memory errors at a high rate",
            evidence,
            "run `dcgmi diag -r 3` when it is free; if it goes on, have the device exchanged",
            release_s=GROWTH_RELEASE_S,
        )
    if health.remapping_failed:
        yield _fault(
            gpu,
            "error",
            "remapping failed",
            "could not remap a faulty memory row",
            _rows(health),
            "have the device exchanged; use the others meanwhile (CUDA_VISIBLE_DEVICES in engine.environment)",
        )
    elif health.remapping_pending:
        yield _fault(
            gpu,
            "warning",
            "remapping pending",
            "has a memory row that waits to be remapped",
            _rows(health),
            f"when it is free: {reset}",
        )
    if gpu.pcie_replays.amount() > REPLAYS_A_MINUTE:
        evidence = (
            f"{gpu.pcie_replays.amount()} replays within a minute, {health.pcie_replays} since the driver was loaded"
        )
        yield _fault(
            gpu,
            "warning",
            "pcie replays",
            "has a faulty PCIe link",
            evidence,
            "check its seating and riser; `lspci -vv` on the host shows the link's errors",
            release_s=GROWTH_RELEASE_S,
        )
    yield from _narrow_link(gpu, health)
    if health.recovery_action is not None and health.recovery_action.lower() not in ("", "none"):
        action = health.recovery_action
        yield _fault(
            gpu,
            "error",
            "recovery",
            f"needs recovery, says its driver: {action}",
            f"recovery action: {action}",
            reset
            if "reset" in action.lower()
            else "stop its jobs and reboot the host"
            if "reboot" in action.lower()
            else "stop its jobs; `nvidia-smi -q` says what the driver waits for",
        )


def _narrow_link(gpu: GpuWindow, health: GpuHealth) -> Iterator[Finding]:
    """The width does not change with the load, but only under load nobody can have lowered it to save power."""
    width, widest = health.pcie_width, health.pcie_width_max
    if width is None or widest is None or not 0 < width < widest or (gpu.utilization.value or 0.0) < BUSY:
        return
    generation = (
        None
        if health.pcie_generation is None
        else f"generation {health.pcie_generation} of {health.pcie_generation_max}"
    )
    yield _fault(
        gpu,
        "warning",
        "pcie width",
        f"has only {width} of {widest} PCIe lanes",
        joined(f"x{width} of x{widest} under load", generation),
        "check its seating, riser and the slot's bifurcation; `lspci -vv` on the host shows LnkSta against LnkCap",
        LINK_HOLD_S,
    )


def _fault(
    gpu: GpuWindow,
    severity: Severity,
    kind: str,
    what: str,
    evidence: str,
    advice: str,
    hold_s: float = 0.0,
    release_s: float = 30.0,
) -> Finding:
    return Finding(
        code="hardware",
        severity=severity,
        subject=gpu.subject,
        summary=f"{gpu.subject} {what}",
        evidence=evidence,
        advice=advice,
        job_id=gpu.sample.owner_job_id,
        kind=kind,
        hold_s=hold_s,
        release_s=release_s,
    )


def _rows(health: GpuHealth) -> str:
    corrected, uncorrected = health.remapped_rows_corrected, health.remapped_rows_uncorrected
    return joined(
        "told by its driver",
        None if corrected is None else f"{corrected} rows remapped after corrected errors",
        None if uncorrected is None else f"{uncorrected} after uncorrectable ones",
    )
