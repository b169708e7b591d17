"""A reading for people: devices, host, disks, engines, jobs, and what is wrong."""

from collections.abc import Iterable

from console.state.device_health import health_words
from console.state.diagnoses import diagnosis_summary
from console.state.forecast import fullness, need_words, pace_words, runway_s
from console.state.moments import format_moment
from console.state.sanitize import one_line
from console.state.units import (
    UNKNOWN,
    format_byte_rate,
    format_bytes,
    format_count,
    format_duration,
    format_loss,
    format_percent,
    format_rate,
)
from remote.protocol.telemetry import (
    Diagnosis,
    EngineSample,
    GpuSample,
    GpuTopology,
    HostSample,
    JobSample,
    MountSample,
    TelemetrySample,
)

Row = tuple[str, ...]

_GPU_HEADING = ("GPU", "USE", "MEM ACT", "MEMORY", "TEMP", "POWER", "CLOCK", "OWNER", "HEALTH")
_MOUNT_HEADING = ("DISK", "USED", "FREE", "FILLS", "RUNWAY")
_JOB_HEADING = ("JOB AT WORK", "DOES", "PACE", "LOSS", "STILL NEEDS")
_MANY_CORES = 16


def telemetry_lines(sample: TelemetrySample, host_now: float) -> list[str]:
    """One reading, with its age on the host's clock."""
    lines = [f"{format_moment(sample.sampled_at)}, {format_duration(max(0.0, host_now - sample.sampled_at))} ago"]
    lines += _gpu_lines(sample)
    lines += _host_lines(sample.host)
    lines += _table([_MOUNT_HEADING, *(_mount_row(mount, sample.jobs) for mount in sample.mounts)])
    lines += [_engine_line(engine) for engine in sample.engines]
    if sample.jobs:
        lines += _table([_JOB_HEADING, *(_job_row(job) for job in sample.jobs)])
    for diagnosis in sample.diagnoses:
        lines += diagnosis_lines(diagnosis, host_now)
    return lines


def _gpu_lines(sample: TelemetrySample) -> list[str]:
    if not sample.gpus:
        return [f"no GPU: {one_line(sample.gpu_detail)}"]
    source = "SIMULATED, no real devices: " if sample.gpu_source == "simulated" else ""
    names = (
        ", ".join(sorted({one_line(gpu.name) for gpu in sample.gpus if gpu.name}))
        or "devices that do not tell their name"
    )
    detail = f" ({one_line(sample.gpu_detail)})" if sample.gpu_detail else ""
    return [f"{source}{names}{detail}", *_table([_GPU_HEADING, *_gpu_rows(sample)])]


def _gpu_rows(sample: TelemetrySample) -> Iterable[Row]:
    for gpu in sample.gpus:
        yield (
            str(gpu.gpu_index),
            format_percent(gpu.gpu_utilization),
            format_percent(gpu.memory_utilization),
            _of(format_bytes(gpu.memory_used_bytes), format_bytes(gpu.memory_total_bytes)),
            UNKNOWN if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} °C",
            _power(gpu),
            UNKNOWN if gpu.sm_clock_hz is None else f"{gpu.sm_clock_hz / 1e6:.0f} MHz",
            one_line(gpu.owner_job_id or UNKNOWN),
            ", ".join(health_words(gpu, sample)) or "ok",
        )


def _of(part: str, whole: str) -> str:
    return UNKNOWN if part == UNKNOWN else f"{part} of {whole}"


def _power(gpu: GpuSample) -> str:
    if gpu.power_watts is None:
        return UNKNOWN
    return f"{gpu.power_watts:.0f} W" + ("" if gpu.power_limit_watts is None else f" of {gpu.power_limit_watts:.0f}")


def _host_lines(host: HostSample) -> list[str]:
    loads = host.cpu_utilization
    mean = sum(loads) / len(loads) if loads else None
    cores = "" if len(loads) > _MANY_CORES else " (" + " ".join(format_percent(load) for load in loads) + ")"
    shm = "" if host.shm_used_bytes is None else f", /dev/shm {_of(*map(format_bytes, _shm(host)))}"
    return [
        f"cpu      {format_percent(mean)} of {len(loads)} cores{cores}, load {host.load_1m:.2f}",
        f"memory   {_of(format_bytes(host.memory_used_bytes), format_bytes(host.memory_total_bytes))}{shm}",
        f"network  in {_speed(host.network_rx_bytes_per_s)}, out {_speed(host.network_tx_bytes_per_s)}",
        f"disks    read {_speed(host.disk_read_bytes_per_s)}, write {_speed(host.disk_write_bytes_per_s)}",
    ]


def _shm(host: HostSample) -> tuple[int | None, int | None]:
    return host.shm_used_bytes, host.shm_total_bytes


def _speed(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{format_bytes(rate)}/s"


def _mount_row(mount: MountSample, jobs: list[JobSample]) -> Row:
    inodes = "" if mount.free_inodes is None else f", {format_count(mount.free_inodes)} inodes"
    runway = runway_s(mount)
    return (
        one_line(mount.path),
        f"{format_percent(fullness(mount))}, {_of(format_bytes(mount.used_bytes), format_bytes(mount.total_bytes))}",
        f"{format_bytes(mount.free_bytes)}{inodes}",
        format_byte_rate(mount.fill_rate_bytes_per_s),
        (UNKNOWN if runway is None else f"full in {format_duration(runway)}") + need_words(mount, jobs),
    )


def _engine_line(engine: EngineSample) -> str:
    name = one_line(f"{engine.engine} of {engine.job_id}")
    if not engine.is_answering:
        return f"engine   {name}: does not answer"
    parts = [
        f"prefill {format_rate(engine.prefill_tokens_per_s, 'tok')}",
        f"decode {format_rate(engine.decode_tokens_per_s, 'tok')}",
        f"{_count(engine.running_requests)} running, {_count(engine.queued_requests)} queued",
        f"cache {format_percent(engine.cache_usage)}",
    ]
    if engine.acceptance_length is not None:
        parts.append(f"acceptance {engine.acceptance_length:.2f} tokens, {format_percent(engine.acceptance_rate)}")
    return f"engine   {name}: {', '.join(parts)}"


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _job_row(job: JobSample) -> Row:
    left = [] if job.seconds_left is None else [format_duration(job.seconds_left)]
    left += [] if job.bytes_left is None else [format_bytes(job.bytes_left)]
    stopped = f", {len(job.suspended_pids)} of {job.process_count} processes stopped" if job.suspended_pids else ""
    return (
        one_line(job.job_id),
        (one_line(job.activity) or one_line(job.agent)) + stopped,
        ", ".join(pace_words(job)) or UNKNOWN,
        _loss(job),
        ", ".join(left) or UNKNOWN,
    )


def _loss(job: JobSample) -> str:
    return UNKNOWN if job.loss is None and job.loss_is_finite is not False else format_loss(job.loss)


def diagnosis_lines(diagnosis: Diagnosis, host_now: float) -> list[str]:
    """What is wrong, since when, what shows it, and what to do."""
    age = format_duration(max(0.0, host_now - diagnosis.since))
    mark = "✗" if diagnosis.severity == "error" else "!"
    return [
        f"{mark} {diagnosis_summary(diagnosis)} [{diagnosis.code}]",
        f"    since {format_moment(diagnosis.since)}, {age} ago: {one_line(diagnosis.evidence)}",
        f"    {one_line(diagnosis.advice)}",
    ]


def topology_lines(topology: GpuTopology) -> list[str]:
    """Driver, events, and a row for each pair of devices."""
    lines = [
        f"driver   {one_line(topology.driver_version)}, CUDA {one_line(topology.cuda_version)}"
        if topology.driver_version
        else "driver   none that answers",
        f"events   from {one_line(topology.events_from)}",
    ]
    if not topology.paths:
        return [*lines, "paths    no two devices"]
    rows = [
        (f"{path.first} – {path.second}", one_line(path.ancestor), one_line(path.peer_to_peer))
        for path in topology.paths
    ]
    return [*lines, *_table([("GPUS", "MEET AT", "PEER TO PEER"), *rows])]


def gap_line(since: float, until: float) -> str:
    """That nothing is known of a stretch of time."""
    length = format_duration(until - since)
    return f"nothing recorded from {format_moment(since)} to {format_moment(until)} ({length})"


def history_line(sample: TelemetrySample) -> str:
    """A recorded sample in a line: time, devices, processor, fullest disk, rates, how much is wrong."""
    parts = [format_moment(sample.sampled_at), *_device_parts(sample.gpus)]
    host = sample.host
    loads = host.cpu_utilization
    parts.append(f"cpu {format_percent(sum(loads) / len(loads) if loads else None)}")
    parts.append(f"memory {format_percent(host.memory_used_bytes / max(1, host.memory_total_bytes))}")
    parts += [f"disk {one_line(each.path)} {format_percent(fullness(each))}" for each in sample.mounts[:2]]
    for engine in sample.engines:
        decode, prefill = engine.decode_tokens_per_s, engine.prefill_tokens_per_s
        parts.append(f"prefill {format_rate(prefill, 'tok')} decode {format_rate(decode, 'tok')}")
    parts += [f"{one_line(job.agent)} {', '.join(pace_words(job))}" for job in sample.jobs if pace_words(job)]
    parts += [f"! {diagnosis_summary(diagnosis)}" for diagnosis in sample.diagnoses]
    return "  ".join(parts)


def _device_parts(gpus: list[GpuSample]) -> list[str]:
    if not gpus:
        return []
    watts = [gpu.power_watts for gpu in gpus if gpu.power_watts is not None]
    used = " ".join(format_percent(gpu.gpu_utilization) for gpu in gpus)
    return [f"gpu {used}", f"{sum(watts):.0f} W"] if watts else [f"gpu {used}"]


def _table(rows: list[Row]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
