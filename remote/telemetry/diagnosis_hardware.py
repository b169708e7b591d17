"""What the devices and their driver report of themselves; pure rules."""

from collections.abc import Iterator
from typing import NamedTuple

from remote.protocol.telemetry import GpuEvent, GpuHealth, GpuSample, TelemetrySample
from remote.telemetry.diagnosis_holding import Finding, Severity
from remote.telemetry.diagnosis_window import BUSY, GpuWindow, Window
from remote.telemetry.figures import duration_text, joined, share_text
from remote.telemetry.gpu_reading import NOT_READ_YET
from remote.telemetry.xid import Meaning, meaning_of, xid_text

ERROR_HOLD_S = 3.0
"""One call of a driver may fail; three seconds of them are a fault."""

FIRST_ANSWER_S = 60.0

REMEMBER_S = 3600.0
"""An event is one moment; whoever looks within the hour learns of it."""

SAME_FAULT_S = 30.0
"""A driver finds out within seconds what else a lost or faulty device does not do any more."""

CORRECTED_IN_10_MIN = 100
"""Corrected errors are what ECC is for; this many in ten minutes come before uncorrectable ones."""

REPLAYS_A_MINUTE = 8
"""DCGM's own limit for PCIe replays."""

LINK_HOLD_S, GROWTH_RELEASE_S = 30.0, 600.0

_RESET = "stop what uses it, monitors too, then `nvidia-smi -r -i {index}` as root; reboot the host if that is refused"


class _Event(NamedTuple):
    first_at: float
    last_s: float
    count: int
    event: GpuEvent


class EventMemory:
    """Events of the driver by device and XID; a device that was reset has no past, nor has any under a driver that was loaded anew.

    What follows a grave event on the same device within seconds is the same fault: later events and the end of its answers
    are told with it.
    """

    def __init__(self) -> None:
        self._events: dict[tuple[int | None, int | str], _Event] = {}
        self._energy: dict[int, float] = {}
        self._broken: dict[int, float] = {}
        self._gpus: dict[int, GpuSample] = {}

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
        self._gpus = {gpu.gpu_index: gpu for gpu in sample.gpus}
        broken = [index for index, gpu in self._gpus.items() if gpu.error is not None]
        self._broken = {index: self._broken.get(index, clock_s) for index in broken}
        if self._events:
            self._events = {
                key: seen
                for key, seen in self._events.items()
                if clock_s - seen.last_s <= REMEMBER_S or self._ended_answers(seen)
            }

    def _counted_anew(self, sample: TelemetrySample) -> set[int]:
        """Devices that were reset, or whose driver was loaded anew: from then on their energy is counted."""
        before = self._energy
        now = {gpu.gpu_index: gpu.energy_joules for gpu in sample.gpus if gpu.energy_joules is not None}
        self._energy = {**before, **now}
        return {index for index, energy in now.items() if energy < before.get(index, 0.0)}

    def findings(self) -> Iterator[Finding]:
        """What is remembered, each fault once."""
        faults: list[list[_Event]] = []
        for seen in sorted(self._events.values(), key=lambda seen: seen.first_at):
            first = next((fault for fault in faults if _belongs(seen, fault[0])), None)
            if first is None:
                faults.append([seen])
            else:
                first.append(seen)
        for seen, *followers in faults:
            yield self._finding(seen, followers)

    def explains(self, gpu: GpuWindow) -> bool:
        """Whether a device does not answer because of an event that is told."""
        return any(
            self._ended_answers(seen) for seen in self._events.values() if seen.event.gpu_index == gpu.sample.gpu_index
        )

    def _ended_answers(self, seen: _Event) -> bool:
        broken_s = None if seen.event.gpu_index is None else self._broken.get(seen.event.gpu_index)
        return broken_s is not None and _is_grave(seen) and abs(broken_s - seen.last_s) <= SAME_FAULT_S

    def _finding(self, seen: _Event, followers: list[_Event]) -> Finding:
        event, meaning = seen.event, _meaning(seen)
        index = event.gpu_index
        gpu = None if index is None else self._gpus.get(index)
        subject = "NVIDIA driver" if index is None else f"GPU {index}"
        is_silent = gpu is not None and gpu.error is not None and self._ended_answers(seen)
        return Finding(
            code="hardware",
            severity=meaning.severity,
            subject=subject,
            summary=f"{subject} reported {_name(seen)}",
            evidence=joined(
                _told_by(event),
                f"seen {seen.count} times" if seen.count > 1 else None,
                *(f"then {_name(other)}" for other in followers),
                f"no answer since: {gpu.error}" if gpu is not None and is_silent else None,
            ),
            advice=meaning.advice.replace("GPU`", f"{index}`").replace("-i GPU", f"-i {index}"),
            job_id=None if gpu is None else gpu.owner_job_id,
            kind=f"event {event.text if event.xid is None else event.xid}",
            release_s=0.0,
            at=seen.first_at,
        )


def _belongs(seen: _Event, first: _Event) -> bool:
    """Whether an event is of the same fault as a grave one before it."""
    device = first.event.gpu_index
    is_near = seen.first_at - first.first_at <= SAME_FAULT_S
    return device is not None and device == seen.event.gpu_index and is_near and _is_grave(first)


def _told_by(event: GpuEvent) -> str:
    """Who told it, and the kernel's own words, which have the process in them."""
    if event.source == "nvml" or event.xid is None:
        return {"nvml": "an event of NVML", "kernel_log": "the kernel's log"}[event.source]
    return f"the kernel's log: {event.text.removeprefix(xid_text(event.xid)).strip(' ()')}"


def _meaning(seen: _Event) -> Meaning:
    xid = seen.event.xid
    return Meaning("", "warning", "`dmesg | tail` on the host") if xid is None else meaning_of(xid)


def _name(seen: _Event) -> str:
    xid = seen.event.xid
    return seen.event.text if xid is None else f"XID {xid}, {_meaning(seen).text}"


def _is_grave(seen: _Event) -> bool:
    return _meaning(seen).severity == "error"


def hardware(window: Window, events: EventMemory) -> Iterator[Finding]:
    """Faults that the devices have now, or had within the time that they stay told; first what the driver reported."""
    yield from events.findings()
    yield from _errors(window, events)
    for gpu in window.gpus.values():
        if gpu.sample.health is not None:
            yield from _health(gpu, gpu.sample.health)


def _errors(window: Window, events: EventMemory) -> Iterator[Finding]:
    """Devices that do not answer; a driver that answers for none of them is one fault, not many."""
    sample = window.sample
    broken = [gpu for gpu in window.gpus.values() if gpu.sample.error is not None]
    if sample.gpu_source == "error" or len(broken) == len(window.gpus) > 1:
        owned = {gpu.sample.owner_job_id for gpu in window.gpus.values()} - {None}
        yield Finding(
            code="hardware",
            severity="error" if window.gpus else "warning",
            subject="NVIDIA driver",
            summary="the NVIDIA driver cannot be used, so no device can be read",
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
        if not events.explains(gpu):
            evidence = joined(
                _last_answer(gpu, sample.sampled_at), f"{len(window.gpus) - len(broken)} other devices answer"
            )
            yield _fault(
                gpu,
                "error",
                "device",
                f"does not answer: {error}",
                evidence,
                _error_advice(gpu, error),
                _patience_s([gpu]),
            )


def _last_answer(gpu: GpuWindow, now: float) -> str | None:
    at = gpu.sample.sampled_at
    return None if at is None else f"last answer {duration_text(max(0.0, now - at))} ago"


def _patience_s(broken: list[GpuWindow]) -> float:
    """How long the fault must last; devices that no process kept awake take seconds each for their first answer."""
    is_first = bool(broken) and all(gpu.sample.error == NOT_READ_YET for gpu in broken)
    return FIRST_ANSWER_S if is_first else ERROR_HOLD_S


def _error_advice(gpu: GpuWindow, error: str) -> str:
    words = error.lower()
    index = gpu.sample.gpu_index
    if "lost" in words or "bus" in words:
        return (
            "a job on it cannot go on: stop it, reboot the host, then check power, cooling and seating if it comes back"
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
            "have the device exchanged; use the others meanwhile (CUDA_VISIBLE_DEVICES in the environment of [engine] and [serving])",
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
            _rows(health),
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
        joined(f"at {share_text(gpu.utilization.value or 0.0)} use", generation),
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
