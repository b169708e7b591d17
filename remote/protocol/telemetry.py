"""One reading of the host. `None` means not known, never zero. Utilisations and fractions are 0 to 1; rates are per second.

Rates and utilisations are means over the time since the reading before (`period_s`).
"""

from typing import Literal

from remote.protocol.base import Message
from remote.protocol.notifications import Notification


class HostSample(Message, frozen=True, kw_only=True):
    """Processor, memory, shared memory, network and disk throughput."""

    cpu_utilization: list[float]
    cpu_model: str
    load_1m: float
    memory_used_bytes: int
    memory_total_bytes: int
    shm_used_bytes: int | None
    shm_total_bytes: int | None
    network_rx_bytes_per_s: float | None
    network_tx_bytes_per_s: float | None
    disk_read_bytes_per_s: float | None
    disk_write_bytes_per_s: float | None


class GpuProcess(Message, frozen=True, kw_only=True):
    """A process that computes on a device; in a container the driver may count it by the host's numbers."""

    pid: int
    memory_bytes: int | None


class GpuHealth(Message, frozen=True, kw_only=True):
    """What changes slowly, read every ten seconds; counters are cumulative since the driver was loaded.

    `recovery_action` is NVML's advice ("none", "reset", "reboot", "drain peer-to-peer", "drain and reset").
    """

    sampled_at: float
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_rows_corrected: int | None = None
    remapped_rows_uncorrected: int | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None
    recovery_action: str | None = None
    nvlinks_active: int | None = None
    processes: list[GpuProcess] | None = None


class GpuSample(Message, frozen=True, kw_only=True):
    """One device as NVML sees it; `gpu_index` is NVML's index, not the CUDA ordinal. `error` names a lost device's fault.

    `sampled_at` is when the device last answered, so that a reading of a driver that hangs shows its age.
    `memory_utilization` is the share of time in which device memory was read or written, not how full it is.
    """

    gpu_index: int
    name: str
    uuid: str
    gpu_utilization: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    sm_clock_hz: float | None
    throttle_reasons: list[str]
    owner_job_id: str | None = None
    error: str | None = None
    sampled_at: float | None = None
    memory_utilization: float | None = None
    temperature_margin_celsius: float | None = None
    memory_clock_hz: float | None = None
    energy_joules: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    health: GpuHealth | None = None


class GpuEvent(Message, frozen=True, kw_only=True):
    """Something that the driver reported at one moment, such as an XID; `gpu_index` None where it does not say for whom."""

    at: float
    gpu_index: int | None
    xid: int | None
    text: str
    source: Literal["nvml", "kernel_log"]


class GpuPath(Message, frozen=True, kw_only=True):
    """How two devices reach each other: the common ancestor in the machine, and whether they may read each other's memory."""

    first: int
    second: int
    ancestor: str
    peer_to_peer: str


class GpuTopology(Message, frozen=True, kw_only=True):
    """What does not change while the driver is loaded; `events_from` says which hardware events can be seen here.

    Without a driver that answers its version is empty.
    """

    driver_version: str
    cuda_version: str
    paths: list[GpuPath]
    events_from: str


class MountSample(Message, frozen=True, kw_only=True):
    """A file system that Roost or a run writes to; the fill rate is a robust slope and None until it is known."""

    path: str
    used_bytes: int
    total_bytes: int
    free_bytes: int
    free_inodes: int | None
    fill_rate_bytes_per_s: float | None
    total_inodes: int | None = None


class EngineSample(Message, frozen=True, kw_only=True):
    """A running inference server, from differences of its own counters; one that does not answer has None throughout.

    `acceptance_length` counts the bonus token; `acceptance_rate` is accepted by proposed draft tokens.
    """

    job_id: str
    engine: str
    running_requests: int | None
    queued_requests: int | None
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    cache_usage: float | None
    acceptance_length: float | None
    acceptance_rate: float | None = None
    is_answering: bool = True


class RankSample(Message, frozen=True, kw_only=True):
    """A process of a job that is one of several equal ones; `state` is the kernel's letter (R, S, D, T, Z).

    `cpu_utilization` is in cores: 1.0 is one core all the time.
    """

    rank: int
    pid: int
    state: str
    cpu_utilization: float | None
    gpu_index: int | None = None


class JobSample(Message, frozen=True, kw_only=True):
    """A job at work: its processes, its pace by its own progress, and what it still has to write and to wait.

    `activity` is what it is doing in one word ("step", "checkpoint", "measurement", "export", "load", "serve", "paused", ...), of a
    run the stage that it is in, empty while it does not say; `progress_age_s` is the time since its last sign of progress and `progress_period_s` the usual
    time between two. `loss_is_finite` False says that the last step's loss was NaN or infinite, and `loss` is None then.
    `cpu_utilization` is in cores. `suspended_pids` are stopped by a signal (T). `bytes_left` of a run is that of all its stages
    to come, its present jobs included; `seconds_left` is of a job's own work. `restarts` counts the engines of a server that died
    and were launched again, the last one so long ago and for that reason.
    """

    job_id: str
    agent: str
    run_id: str | None
    process_count: int
    cpu_utilization: float | None
    memory_bytes: int
    ranks: list[RankSample] = []
    suspended_pids: list[int] = []
    activity: str = ""
    progress_age_s: float | None = None
    progress_period_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    bytes_per_s: float | None = None
    loss: float | None = None
    loss_is_finite: bool | None = None
    accuracy: list[float] = []
    acceptance_length: float | None = None
    writes_to: str | None = None
    bytes_left: int | None = None
    seconds_left: float | None = None
    restarts: int = 0
    restarted_age_s: float | None = None
    restarted_because: str = ""


DiagnosisCode = Literal[
    "gpu_idle",
    "straggler",
    "busy_not_working",
    "throttled",
    "hardware",
    "runway_short",
    "inodes_short",
    "stale_telemetry",
    "low_acceptance",
    "loss_not_finite",
    "queue_growing",
    "no_progress",
    "engine_silent",
    "server_restarted",
]
"""Stable names of what the recorder can find."""


class Diagnosis(Message, frozen=True, kw_only=True):
    """What is wrong with `subject` ("GPU 3", "/data", a job) and since when; what shows it, and what to do about it.

    `summary` and `advice` are sentences, `evidence` is the figures behind them.
    """

    code: DiagnosisCode
    severity: Literal["warning", "error"]
    subject: str
    since: float
    summary: str
    evidence: str
    advice: str
    job_id: str | None = None


class TelemetrySample(Message, frozen=True, kw_only=True):
    """Everything at one moment; `gpu_source` says whether NVML answered and `gpu_detail` why not.

    "simulated" is a stand-in for NVML that plays a scenario. `gpu_events` are those since the sample before, `notifications` those
    of the last minute. A sample of
    the history may stand for several readings: `period_s` is the time that it covers, up to `sampled_at`.
    """

    sampled_at: float
    host: HostSample
    gpu_source: Literal["nvml", "none", "error", "simulated"]
    gpu_detail: str
    gpus: list[GpuSample]
    mounts: list[MountSample]
    engines: list[EngineSample]
    jobs: list[JobSample] = []
    gpu_events: list[GpuEvent] = []
    diagnoses: list[Diagnosis] = []
    notifications: list[Notification] = []
    period_s: float = 1.0


class ReadHistory(Message, frozen=True, kw_only=True):
    """Recorded samples with `since` <= `sampled_at` < `until`, thinned to one in `step_s` -> `TelemetryHistory`.

    `until` None is now. A page holds what goes into a line: ask again from `next_since`.
    """

    since: float
    until: float | None = None
    step_s: float = 1.0


class TelemetryHistory(Message, frozen=True, kw_only=True):
    """Samples in their order; where nothing was recorded there are none. `next_since` None says that this is all."""

    samples: list[TelemetrySample]
    next_since: float | None = None
    oldest_at: float | None = None


class ReadTopology(Message, frozen=True, kw_only=True):
    """How the devices of the host are connected -> `GpuTopology`."""
