"""What is to be said of a device's health, in few words; the figures themselves are in its sample."""

from console.state.sanitize import one_line
from console.state.units import format_duration
from remote.protocol.telemetry import GpuEvent, GpuHealth, GpuSample, TelemetrySample

OLD_READING_S = 5.0
"""A device that has not answered for longer is shown with the age of what it said."""


def device_name(gpu: GpuSample) -> str:
    """What a device calls itself; one that was lost before anybody asked it has not told."""
    return one_line(gpu.name) or "name not known"


def event_text(event: GpuEvent) -> str:
    """An event with its XID, which its text may have already."""
    text = one_line(event.text)
    return text if event.xid is None or text.startswith(f"XID {event.xid}") else f"XID {event.xid}: {text}"


def age_of_device(gpu: GpuSample, sample: TelemetrySample) -> float | None:
    """How much older than its sample a device's reading is, in seconds; None when it is as new."""
    if gpu.sampled_at is None or sample.sampled_at - gpu.sampled_at <= OLD_READING_S:
        return None
    return sample.sampled_at - gpu.sampled_at


def health_words(gpu: GpuSample, sample: TelemetrySample) -> list[str]:
    """What is not as it should be, the gravest first; empty for a device that is well."""
    words: list[str] = []
    if gpu.error is not None:
        words.append(one_line(gpu.error))
    words += event_words(gpu, sample)
    age = age_of_device(gpu, sample)
    if age is not None:
        words.append(f"no answer for {format_duration(age)}")
    words += _counters(gpu.health) if gpu.health is not None else []
    return words + [one_line(reason).replace("_", " ") for reason in gpu.throttle_reasons]


def event_words(gpu: GpuSample, sample: TelemetrySample) -> list[str]:
    """The events of a device since the sample before."""
    own = [event for event in sample.gpu_events if event.gpu_index == gpu.gpu_index]
    return [f"XID {event.xid}" if event.xid is not None else one_line(event.text) for event in own]


def _counters(health: GpuHealth) -> list[str]:
    words: list[str] = []
    if health.recovery_action not in (None, "none"):
        words.append(f"needs {one_line(health.recovery_action or '')}")
    if health.ecc_uncorrected:
        words.append(f"{health.ecc_uncorrected} uncorrected ECC errors")
    if health.remapping_failed:
        words.append("row remapping failed")
    if health.remapping_pending:
        words.append("row remapping pending")
    return words + _narrow_link(health)


def _narrow_link(health: GpuHealth) -> list[str]:
    width, most = health.pcie_width, health.pcie_width_max
    return [f"PCIe x{width} of x{most}"] if width is not None and most is not None and width < most else []
