"""A reading as Prometheus text: the DCGM exporter's names, units and labels where it has them, else `roost_…` in base units.

What is not known is left out. DCGM's names are those of its etc/default-counters.csv; its counters lack the `_total` that
the text format's writer demands of a counter, and so have no type here.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from remote.protocol.telemetry import (
    EngineSample,
    GpuEvent,
    GpuHealth,
    GpuSample,
    HostSample,
    JobSample,
    MountSample,
    TelemetrySample,
)

_MIB = 1 << 20
_GPU_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname")
_JOB_LABELS = ("job_id", "agent", "Hostname")

Figure = float | None


class Dcgm(NamedTuple):
    """A field of the DCGM exporter and where it comes from; a counter only grows."""

    name: str
    help: str
    of: Callable[[GpuSample], Figure]
    counter: bool = False


class Own(NamedTuple):
    """A metric of ours."""

    name: str
    help: str
    value: Figure


def _scaled(value: Figure, factor: float) -> Figure:
    return None if value is None else value * factor


def _free_mib(gpu: GpuSample) -> Figure:
    if gpu.memory_used_bytes is None or gpu.memory_total_bytes is None:
        return None
    return (gpu.memory_total_bytes - gpu.memory_used_bytes) / _MIB


def _health(read: Callable[[GpuHealth], Figure]) -> Callable[[GpuSample], Figure]:
    return lambda gpu: None if gpu.health is None else read(gpu.health)


_DCGM = (
    Dcgm("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", lambda gpu: _scaled(gpu.sm_clock_hz, 1e-6)),
    Dcgm("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", lambda gpu: _scaled(gpu.memory_clock_hz, 1e-6)),
    Dcgm("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda gpu: gpu.temperature_celsius),
    Dcgm("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda gpu: gpu.power_watts),
    Dcgm(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since the driver was loaded (in mJ).",
        lambda gpu: _scaled(gpu.energy_joules, 1e3),
        counter=True,
    ),
    Dcgm(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "Total number of PCIe retries.",
        _health(lambda health: health.pcie_replays),
        counter=True,
    ),
    Dcgm("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda gpu: _scaled(gpu.gpu_utilization, 100)),
    Dcgm("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", lambda gpu: _scaled(gpu.memory_utilization, 100)),
    Dcgm("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", _free_mib),
    Dcgm(
        "DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", lambda gpu: _scaled(gpu.memory_used_bytes, 1 / _MIB)
    ),
    Dcgm(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Total number of single-bit volatile ECC errors.",
        _health(lambda health: health.ecc_corrected),
        counter=True,
    ),
    Dcgm(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "Total number of double-bit volatile ECC errors.",
        _health(lambda health: health.ecc_uncorrected),
        counter=True,
    ),
    Dcgm(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors.",
        _health(lambda health: health.remapped_rows_uncorrected),
        counter=True,
    ),
    Dcgm(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors.",
        _health(lambda health: health.remapped_rows_corrected),
        counter=True,
    ),
    Dcgm(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "Whether remapping of rows has failed.",
        _health(lambda health: health.remapping_failed),
    ),
)


class Reading(Collector):
    """One sample, as the library's writer takes it."""

    def __init__(self, sample: TelemetrySample, host_name: str, past: list[GpuEvent]) -> None:
        self._sample = sample
        self._host = host_name
        self._events = [*past, *sample.gpu_events]

    def collect(self) -> Iterable[Metric]:
        """The metrics that have a value, each family once."""
        found = [*self._devices(), *self._own()]
        return [family for family in found if family.samples]

    def _devices(self) -> Iterable[Metric]:
        for field in _DCGM:
            family = UnknownMetricFamily if field.counter else GaugeMetricFamily
            metric = family(field.name, field.help, labels=_GPU_LABELS)
            for gpu in self._sample.gpus:
                _add(metric, self._gpu(gpu), field.of(gpu))
            yield metric
        yield self._last_xid()

    def _last_xid(self) -> Metric:
        metric = GaugeMetricFamily(
            "DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", labels=_GPU_LABELS
        )
        last = {event.gpu_index: event.xid for event in self._events if event.xid is not None}
        for gpu in self._sample.gpus:
            _add(metric, self._gpu(gpu), last.get(gpu.gpu_index))
        return metric

    def _gpu(self, gpu: GpuSample) -> list[str]:
        return [str(gpu.gpu_index), gpu.uuid, f"nvidia{gpu.gpu_index}", gpu.name, self._host]

    def _own(self) -> Iterable[Metric]:
        sample = self._sample
        yield from self._families(_GPU_LABELS, [(self._gpu(gpu), _device(gpu)) for gpu in sample.gpus])
        played = Own("roost_gpus_simulated", "1 where a stand-in plays the devices.", sample.gpu_source == "simulated")
        yield from self._families(("Hostname",), [([self._host], [*_host(sample.host, sample.sampled_at), played])])
        yield from self._families(
            ("cpu", "Hostname"),
            [
                ([str(index), self._host], [Own("roost_cpu_utilization_ratio", "Share of time a core works.", load)])
                for index, load in enumerate(sample.host.cpu_utilization)
            ],
        )
        yield from self._families(
            ("mountpoint", "Hostname"), [([mount.path, self._host], _mount(mount)) for mount in sample.mounts]
        )
        yield from self._families(
            ("job_id", "engine", "Hostname"),
            [([engine.job_id, engine.engine, self._host], _engine(engine)) for engine in sample.engines],
        )
        yield from self._families(
            _JOB_LABELS, [([job.job_id, job.agent, self._host], _job(job)) for job in sample.jobs]
        )
        yield self._diagnoses()

    def _families(self, labels: tuple[str, ...], rows: list[tuple[list[str], list[Own]]]) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for values, figures in rows:
            for figure in figures:
                family = families.get(figure.name)
                if family is None:
                    kind = CounterMetricFamily if figure.name.endswith("_total") else GaugeMetricFamily
                    family = families[figure.name] = kind(figure.name, figure.help, labels=labels)
                _add(family, values, figure.value)
        return families.values()

    def _diagnoses(self) -> Metric:
        labels = ("code", "severity", "subject", "Hostname")
        metric = GaugeMetricFamily(
            "roost_diagnosis_start_time_seconds", "Since when something is wrong.", labels=labels
        )
        since: dict[tuple[str, str, str], float] = {}
        for each in self._sample.diagnoses:
            # One subject may have several of a kind (two XIDs of a device); a series is told once, or nobody can scrape the page.
            key = (each.code, each.severity, each.subject)
            since[key] = min(each.since, since.get(key, each.since))
        for key, began in since.items():
            _add(metric, [*key, self._host], began)
        return metric


def exposition(sample: TelemetrySample, host_name: str, past: list[GpuEvent]) -> str:
    """The sample in Prometheus' text format; `past` are events of before, oldest first."""
    return generate_latest(Reading(sample, host_name, past)).decode()  # pyright: ignore[reportArgumentType]


def _add(metric: Metric, labels: list[str], value: Figure) -> None:
    if value is not None:
        metric.add_metric(labels, float(value))  # pyright: ignore[reportAttributeAccessIssue]


def _device(gpu: GpuSample) -> list[Own]:
    return [
        Own("roost_gpu_power_limit_watts", "Power limit.", gpu.power_limit_watts),
        Own("roost_gpu_temperature_margin_celsius", "Degrees below throttling.", gpu.temperature_margin_celsius),
        Own("roost_gpu_pcie_receive_bytes_per_second", "PCIe, to the device.", gpu.pcie_rx_bytes_per_s),
        Own("roost_gpu_pcie_transmit_bytes_per_second", "PCIe, from the device.", gpu.pcie_tx_bytes_per_s),
        Own("roost_gpu_nvlink_receive_bytes_per_second", "NVLink, to the device.", gpu.nvlink_rx_bytes_per_s),
        Own("roost_gpu_nvlink_transmit_bytes_per_second", "NVLink, from the device.", gpu.nvlink_tx_bytes_per_s),
        Own("roost_gpu_throttle_reasons", "How many reasons limit its clocks.", len(gpu.throttle_reasons)),
        Own("roost_gpu_lost", "1 for a device that NVML cannot reach.", gpu.error is not None),
        Own("roost_gpu_reading_timestamp_seconds", "When the device last answered.", gpu.sampled_at),
    ]


def _host(host: HostSample, sampled_at: float) -> list[Own]:
    return [
        Own("roost_reading_timestamp_seconds", "When this was read.", sampled_at),
        Own("roost_load1", "Load average over a minute.", host.load_1m),
        Own("roost_memory_used_bytes", "Memory in use.", host.memory_used_bytes),
        Own("roost_memory_size_bytes", "Memory.", host.memory_total_bytes),
        Own("roost_shm_used_bytes", "Shared memory in use.", host.shm_used_bytes),
        Own("roost_shm_size_bytes", "Size of the shared memory.", host.shm_total_bytes),
        Own("roost_network_receive_bytes_per_second", "Network, in.", host.network_rx_bytes_per_s),
        Own("roost_network_transmit_bytes_per_second", "Network, out.", host.network_tx_bytes_per_s),
        Own("roost_disk_read_bytes_per_second", "Disks, read.", host.disk_read_bytes_per_s),
        Own("roost_disk_written_bytes_per_second", "Disks, written.", host.disk_write_bytes_per_s),
    ]


def _mount(mount: MountSample) -> list[Own]:
    return [
        Own("roost_filesystem_size_bytes", "Size of a file system.", mount.total_bytes),
        Own("roost_filesystem_used_bytes", "Used bytes of a file system.", mount.used_bytes),
        Own("roost_filesystem_avail_bytes", "What the user may still write.", mount.free_bytes),
        Own("roost_filesystem_files", "Inodes of a file system.", mount.total_inodes),
        Own("roost_filesystem_files_free", "Free inodes of a file system.", mount.free_inodes),
        Own("roost_filesystem_fill_bytes_per_second", "How fast it fills.", mount.fill_rate_bytes_per_s),
    ]


def _engine(engine: EngineSample) -> list[Own]:
    return [
        Own("roost_engine_up", "1 for a server that answers.", engine.is_answering),
        Own("roost_engine_running_requests", "Requests at work.", engine.running_requests),
        Own("roost_engine_queued_requests", "Requests that wait.", engine.queued_requests),
        Own("roost_engine_prefill_tokens_per_second", "Tokens read.", engine.prefill_tokens_per_s),
        Own("roost_engine_decode_tokens_per_second", "Tokens written.", engine.decode_tokens_per_s),
        Own("roost_engine_cache_usage_ratio", "Share of the KV cache in use.", engine.cache_usage),
        Own("roost_engine_acceptance_length", "Tokens a verification, bonus included.", engine.acceptance_length),
        Own("roost_engine_acceptance_ratio", "Accepted by proposed draft tokens.", engine.acceptance_rate),
    ]


def _job(job: JobSample) -> list[Own]:
    return [
        Own("roost_job_processes", "Processes of a job.", job.process_count),
        Own("roost_job_suspended_processes", "Those that a signal has stopped.", len(job.suspended_pids)),
        Own("roost_job_cpu_cores", "Cores that a job uses.", job.cpu_utilization),
        Own("roost_job_memory_bytes", "Memory of a job's processes.", job.memory_bytes),
        Own("roost_job_progress_age_seconds", "Since its last sign of progress.", job.progress_age_s),
        Own("roost_job_samples_per_second", "Samples.", job.samples_per_s),
        Own("roost_job_tokens_per_second", "Tokens.", job.tokens_per_s),
        Own("roost_job_written_bytes_per_second", "Bytes written.", job.bytes_per_s),
        Own("roost_job_loss", "Training loss.", job.loss),
        Own("roost_job_acceptance_length", "Tokens a verification, bonus included.", job.acceptance_length),
        Own("roost_job_left_bytes", "What it has still to write.", job.bytes_left),
        Own("roost_job_left_seconds", "What it expects to take still.", job.seconds_left),
    ]
