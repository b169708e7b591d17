"""What was read in the last minutes: histories of devices, cores and servers, and the events of devices."""

from console.state.marks import Marks
from console.state.series import TimeSeries
from remote.protocol.telemetry import GpuEvent, TelemetrySample

SPAN_S = 600.0
"""How much of the past the screen asks a host for."""

_MOST_EVENTS = 200


class Readings:
    """Histories by the moment of each sample: what comes twice counts once, what is missing is a gap."""

    def __init__(self) -> None:
        self.gpus: dict[int, TimeSeries] = {}
        self.cpus: dict[int, TimeSeries] = {}
        self.prefill = TimeSeries()
        self.decode = TimeSeries()
        self.acceptance = TimeSeries()
        self.marks = Marks()
        self.newest_at: float | None = None
        self._events: dict[tuple[float, int | None, str], GpuEvent] = {}

    @property
    def events(self) -> list[GpuEvent]:
        """The newest events of devices, newest first."""
        return sorted(self._events.values(), key=lambda event: -event.at)[:_MOST_EVENTS]

    def add(self, sample: TelemetrySample) -> None:
        """Take in one sample, of now or of then."""
        at = sample.sampled_at
        self.newest_at = at if self.newest_at is None else max(self.newest_at, at)
        for gpu in sample.gpus:
            self.gpus.setdefault(gpu.gpu_index, TimeSeries()).add(at, gpu.gpu_utilization)
        for index, load in enumerate(sample.host.cpu_utilization):
            self.cpus.setdefault(index, TimeSeries()).add(at, load)
        self.prefill.add(at, _total([engine.prefill_tokens_per_s for engine in sample.engines]))
        self.decode.add(at, _total([engine.decode_tokens_per_s for engine in sample.engines]))
        lengths = [engine.acceptance_length for engine in sample.engines if engine.acceptance_length is not None]
        self.acceptance.add(at, lengths[0] if lengths else None)
        self.marks.add(sample)
        for event in sample.gpu_events:
            self._events[event.at, event.gpu_index, event.text] = event


def _total(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
