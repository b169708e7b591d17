"""Devices that rest, lag behind their peers, are held back, or were not read for a while; pure rules."""

from collections.abc import Callable, Iterator
from statistics import median

from remote.protocol.telemetry import GpuSample
from remote.telemetry.diagnosis_holding import Finding
from remote.telemetry.diagnosis_window import BUSY, IDLE, GpuWindow, JobWindow, Window
from remote.telemetry.figures import duration_text, joined, list_text, megahertz_text, share_text

IDLE_HOLD_S = 60.0
"""A device may wait this long for its peers between two pieces of work."""

IDLE_JOB_HOLD_S = 300.0
"""All devices of a job may rest together between phases that it does not tell; five minutes of them are worth a word."""

UNASKED_SERVER_HOLD_S = 1800.0
"""A server that nobody asks is no fault; one that holds its devices for half an hour costs what they cost."""

STRAGGLER_HOLD_S = 22.0
"""With the seconds that the means need to follow, a device that lags is told some 30 s after it began."""

STRAGGLER_UTILIZATION, STRAGGLER_CLOCK, STRAGGLER_POWER = 0.5, 0.75, 0.5
"""Of the median of the peers: below it, even shards of a model or of a batch do not explain the difference."""

PEERS_BUSY = 0.4
"""Median utilisation of the peers at which a comparison says something."""

THROTTLED_HOLD_S, THROTTLED_LAPSE_S, THROTTLED_RELEASE_S = 10.0, 3.0, 30.0
"""Thermal limits come and go within seconds."""

CAPPED_HOLD_S, CAPPED_CLOCK = 120.0, 0.8
"""Power caps are how such devices run; one is told when it costs a fifth of the peers' clock for minutes."""

STALE_S, FRESH_S, STALE_HOLD_S = 10.0, 5.0, 3.0
"""A device that was last read so long ago while others are fresh; health is read between fast readings and may delay one."""


def gpu_idle(window: Window) -> Iterator[Finding]:
    """Devices that do nothing while others of the same job work, or all devices of a job."""
    for job in window.jobs.values():
        devices = [gpu for gpu in window.devices_of(job.sample.job_id) if gpu.sample.gpu_utilization is not None]
        resting = [gpu for gpu in devices if (gpu.sample.gpu_utilization or 0.0) <= IDLE]
        if job.is_quiet or not resting:
            continue
        working = [gpu for gpu in devices if (gpu.utilization.value or 0.0) >= PEERS_BUSY]
        if len(resting) == len(devices):
            yield from _idle_job(window, job, devices)
        elif 2 * len(working) >= len(devices):
            yield from (_idle_device(job, gpu, working) for gpu in resting)


def _idle_device(job: JobWindow, gpu: GpuWindow, working: list[GpuWindow]) -> Finding:
    mean = sum(other.utilization.value or 0.0 for other in working) / len(working)
    return Finding(
        code="gpu_idle",
        severity="warning",
        subject=gpu.subject,
        summary=f"{gpu.subject} does nothing while {len(working)} other devices of {job.name} work",
        evidence=joined(
            f"{gpu.subject} at {share_text(gpu.sample.gpu_utilization or 0.0)}",
            f"the others at {share_text(mean)}",
            _rank_text(job, gpu.sample.gpu_index),
        ),
        advice=f"look at its rank with `roost logs {job.sample.job_id}`; on the host, `py-spy dump --pid PID` shows where it waits",
        job_id=job.sample.job_id,
        hold_s=IDLE_HOLD_S,
    )


def _idle_job(window: Window, job: JobWindow, devices: list[GpuWindow]) -> Iterator[Finding]:
    """All devices at rest; without a word of what the job does they may rest for a reason."""
    if not job.sample.activity:
        return
    engine = window.engines.get(job.sample.job_id)
    is_unasked = engine is not None and not engine.sample.running_requests and not engine.sample.queued_requests
    numbers = list_text(gpu.sample.gpu_index for gpu in devices)
    name = f"{job.name} has" if is_unasked else f"{job.name} ({job.sample.activity}) lets"
    yield Finding(
        code="gpu_idle",
        severity="warning",
        subject=job.sample.job_id,
        summary=f"{name} all its devices idle" if not is_unasked else f"{name} devices that do nothing: nobody asks it",
        evidence=joined(
            f"GPU {numbers} at {share_text(max(gpu.sample.gpu_utilization or 0.0 for gpu in devices))} at most",
            "no request runs or waits" if is_unasked else None,
            _cores_text(job),
        ),
        advice=(
            f"`roost stop {job.sample.job_id} --confirm {job.sample.job_id}` frees the devices if it is not needed"
            if is_unasked
            else f"`roost logs {job.sample.job_id}` says what it waits for; a slow disk, tokenisation on the CPU and a lock are usual"
        ),
        job_id=job.sample.job_id,
        kind="job",
        hold_s=UNASKED_SERVER_HOLD_S if is_unasked else IDLE_JOB_HOLD_S,
    )


def slow_device(window: Window) -> Iterator[Finding]:
    """One device of a job far below its peers' median in utilisation, clock or power."""
    for job in window.jobs.values():
        devices = [gpu for gpu in window.devices_of(job.sample.job_id) if gpu.utilization.value is not None]
        if job.is_quiet or len(devices) < 3:
            continue
        slow = [(gpu, shown) for gpu in devices if (shown := _lag(gpu, devices))]
        if len(slow) <= max(1, len(devices) // 4):
            yield from (_slow(job, gpu, shown) for gpu, shown in slow)


def _lag(gpu: GpuWindow, devices: list[GpuWindow]) -> list[str]:
    """In what the device lags behind the others, in words; an idle one is another trouble, a throttled one as well."""
    peers = [other for other in devices if other is not gpu]
    usual = _median(peers, lambda other: other.utilization.value)
    own = gpu.utilization.value or 0.0
    if usual is None or usual < PEERS_BUSY or own <= IDLE or hard_reasons(gpu.sample):
        return []
    shown: list[str] = []
    if own < STRAGGLER_UTILIZATION * usual:
        shown.append(f"utilisation {share_text(own)}, its peers {share_text(usual)}")
    clock, usual_clock = gpu.clock.value, _median(peers, lambda other: other.clock.value)
    if clock is not None and usual_clock is not None and own >= PEERS_BUSY and clock < STRAGGLER_CLOCK * usual_clock:
        shown.append(f"clock {megahertz_text(clock)}, its peers {megahertz_text(usual_clock)}")
    power, usual_power = gpu.power.value, _median(peers, lambda other: other.power.value)
    if power is not None and usual_power is not None and _is_loaded(peers) and power < STRAGGLER_POWER * usual_power:
        shown.append(f"power {power:.0f} W, its peers {usual_power:.0f} W")
    return shown


def _is_loaded(peers: list[GpuWindow]) -> bool:
    """Whether the peers draw enough power for a comparison."""
    share = _median(peers, _power_share)
    return share is None or share >= 0.3


def _power_share(gpu: GpuWindow) -> float | None:
    limit = gpu.sample.power_limit_watts
    return None if gpu.power.value is None or not limit else gpu.power.value / limit


def _slow(job: JobWindow, gpu: GpuWindow, shown: list[str]) -> Finding:
    rank = _rank_text(job, gpu.sample.gpu_index)
    return Finding(
        code="straggler",
        severity="warning",
        subject=gpu.subject,
        summary=joined(f"{gpu.subject} lags far behind the other devices of {job.name}", rank),
        evidence="; ".join(
            [*shown, *([list_text(gpu.sample.throttle_reasons)] if gpu.sample.throttle_reasons else [])]
        ),
        advice=(
            f"compare `nvidia-smi -q -i {gpu.sample.gpu_index} -d CLOCK,POWER,PERFORMANCE` with a peer's; look for other "
            "processes on the device and for a lower power limit or locked clocks (`nvidia-smi -rgc` frees them)"
        ),
        job_id=job.sample.job_id,
        hold_s=STRAGGLER_HOLD_S,
        lapse_s=2.0,
        release_s=20.0,
    )


def throttled(window: Window) -> Iterator[Finding]:
    """Devices that the hardware or the heat holds back, and those that a power cap costs much of their clock."""
    for gpu in window.gpus.values():
        reasons = hard_reasons(gpu.sample)
        if reasons:
            yield _throttled(window, gpu, reasons)
        elif gpu.sample.throttle_reasons and (usual := _usual_clock(window, gpu)) is not None:
            own = gpu.clock.value
            if own is not None and own < CAPPED_CLOCK * usual and (gpu.utilization.value or 0.0) >= BUSY:
                yield _capped(gpu, own, usual)


def _throttled(window: Window, gpu: GpuWindow, reasons: list[str]) -> Finding:
    sample = gpu.sample
    margin = sample.temperature_margin_celsius
    usual = _usual_clock(window, gpu)
    is_hot = any("thermal" in reason.lower() for reason in reasons)
    return Finding(
        code="throttled",
        severity="warning",
        subject=gpu.subject,
        summary=f"{gpu.subject} is held back: {list_text(reasons)}",
        evidence=joined(
            None if sample.temperature_celsius is None else f"{sample.temperature_celsius:.0f} °C",
            None
            if margin is None
            else f"{margin:.0f} °C below its limit"
            if margin > 0
            else "at its temperature limit",
            None if sample.sm_clock_hz is None else f"clock {megahertz_text(sample.sm_clock_hz)}",
            None if usual is None else f"the others at {megahertz_text(usual)}",
            None if sample.power_watts is None else f"{sample.power_watts:.0f} W",
        )
        or "told by its driver",
        advice=(
            "look at the fans and the air of the chassis, and at neighbours that blow warm air into it; "
            f"`nvidia-smi -i {sample.gpu_index} -pl WATTS` with a lower limit keeps all devices at the same pace meanwhile"
            if is_hot
            else f"the power supply or the board asks for it: check cables and supplies, then "
            f"`nvidia-smi -q -i {sample.gpu_index} -d PERFORMANCE,POWER`"
        ),
        job_id=sample.owner_job_id,
        hold_s=THROTTLED_HOLD_S,
        lapse_s=THROTTLED_LAPSE_S,
        release_s=THROTTLED_RELEASE_S,
    )


def _capped(gpu: GpuWindow, own: float, usual: float) -> Finding:
    limit = gpu.sample.power_limit_watts
    return Finding(
        code="throttled",
        severity="warning",
        subject=gpu.subject,
        summary=f"{gpu.subject} runs at {share_text(own / usual)} of the clock of the others under its power cap",
        evidence=joined(
            f"clock {megahertz_text(own)}, the others {megahertz_text(usual)}",
            None if gpu.power.value is None else f"{gpu.power.value:.0f} W",
            None if limit is None else f"limit {limit:.0f} W",
        ),
        advice=f"compare `nvidia-smi -q -i {gpu.sample.gpu_index} -d POWER` with a peer's; `nvidia-smi -pl WATTS` sets the limit",
        job_id=gpu.sample.owner_job_id,
        kind="power cap",
        hold_s=CAPPED_HOLD_S,
        lapse_s=10.0,
        release_s=60.0,
    )


def stale_telemetry(window: Window) -> Iterator[Finding]:
    """Devices that were last read long ago while others are fresh."""
    now = window.sample.sampled_at
    ages = [(gpu, now - at) for gpu in window.gpus.values() if (at := gpu.sample.sampled_at) is not None]
    if not any(age <= FRESH_S for _, age in ages):
        return
    for gpu, age in ages:
        if age > STALE_S and gpu.sample.error is None:
            yield Finding(
                code="stale_telemetry",
                severity="warning",
                subject=gpu.subject,
                summary=f"{gpu.subject} has not been read for {duration_text(age)}, other devices are",
                evidence=f"{sum(other <= FRESH_S for _, other in ages)} other devices answered within {duration_text(FRESH_S)}",
                advice=f"`timeout 5 nvidia-smi -i {gpu.sample.gpu_index}` and `dmesg | tail` on the host; a device whose "
                "driver calls hang needs a reset or a reboot",
                job_id=gpu.sample.owner_job_id,
                hold_s=STALE_HOLD_S,
            )


def hard_reasons(sample: GpuSample) -> list[str]:
    """Why the device is held back, but for a power cap in software."""
    return [reason for reason in sample.throttle_reasons if reason.lower().replace("_", " ") != "power cap"]


def _usual_clock(window: Window, gpu: GpuWindow) -> float | None:
    """The median clock of the other devices of the same kind that work."""
    peers = [
        other
        for other in window.gpus.values()
        if other is not gpu and other.sample.name == gpu.sample.name and (other.utilization.value or 0.0) >= BUSY
    ]
    return _median(peers, lambda other: other.clock.value)


def _median(gpus: list[GpuWindow], value: Callable[[GpuWindow], float | None]) -> float | None:
    known = [found for gpu in gpus if (found := value(gpu)) is not None]
    return median(known) if known else None


def _rank_text(job: JobWindow, gpu_index: int) -> str | None:
    for rank in job.sample.ranks:
        if rank.gpu_index == gpu_index:
            return f"rank {rank.rank} (pid {rank.pid}, state {rank.state})"
    return None


def _cores_text(job: JobWindow) -> str | None:
    cores = job.sample.cpu_utilization
    return None if cores is None else f"its processes use {cores:.1f} cores"
