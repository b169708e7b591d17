"""Jobs that are suspended, have a silent rank, only seem to work, do not get on, or train on nothing; pure rules."""

from collections.abc import Iterator
from typing import NamedTuple

from remote.protocol.telemetry import JobSample, RankSample, TelemetrySample
from remote.telemetry.diagnosis_holding import Finding
from remote.telemetry.diagnosis_window import BUSY, IDLE, GpuWindow, JobWindow, Window
from remote.telemetry.figures import duration_text, joined, list_text, range_text, share_text

SUSPENDED_HOLD_S = 3.0
"""A tracer such as py-spy stops a process for less."""

SUSPENDED_RELEASE_S = 15.0
"""Longer than that of what it causes, which would otherwise flash up when the process goes on."""

SILENT_HOLD_S = 22.0
SILENT_CORES = 0.02
SPINNING_CORES = 0.5
"""A rank that waits for another in NCCL or in SGLang's scheduler spins on a core; one that sleeps uses next to none."""

HUNG_AGE_S, HUNG_PERIODS = 30.0, 6
"""A step that takes six times its usual time is hung, or will soon be told to be slow anyway."""

HUNG_UTILIZATION, HUNG_POWER, HUNG_MEMORY = 0.9, 0.45, 0.05
"""A kernel that spins keeps a device at 100%, with neither the power nor the memory traffic of work."""

HUNG_SERVER_S = 60.0
"""A server with requests that gives no token for so long; a chunk of a long prompt takes seconds."""

HUNG_HOLD_S = 5.0

STUCK_AGE_S, STUCK_PERIODS = 60.0, 10
"""Longer than any hiccup of a file system or of a garbage collector that was seen."""

NOT_FINITE_KEPT_S = 1800.0
"""A training ends with its loss: who looks later learns why."""


def suspended(window: Window) -> Iterator[Finding]:
    """Processes of jobs that a signal stopped."""
    for job in window.jobs.values():
        sample = job.sample
        ranks = [rank for rank in sample.ranks if rank.state in ("T", "t")]
        pids = sorted({*sample.suspended_pids, *(rank.pid for rank in ranks)})
        if not pids:
            continue
        others = len(sample.ranks) - len(ranks)
        who = _ranks_text(ranks) if ranks else f"{'process' if len(pids) == 1 else 'processes'} {list_text(pids)}"
        yield Finding(
            code="straggler",
            severity="error",
            subject=sample.job_id,
            summary=f"{who} of {job.name} {'is' if len(pids) == 1 else 'are'} suspended by a signal"
            + (f", so that {others} other ranks wait" if ranks and others else ""),
            evidence=joined(
                f"state T: pid {list_text(pids)}",
                None if sample.progress_age_s is None else f"last progress {duration_text(sample.progress_age_s)} ago",
            ),
            advice=f"`kill -CONT {' '.join(map(str, pids))}` on the host lets it go on; look for who sent SIGSTOP (a debugger, a "
            "shell's job control)",
            job_id=sample.job_id,
            kind="suspended",
            hold_s=SUSPENDED_HOLD_S,
            release_s=SUSPENDED_RELEASE_S,
        )


def silent_rank(window: Window) -> Iterator[Finding]:
    """One rank without any activity while most of its peers work or spin."""
    for job in window.jobs.values():
        ranks = job.sample.ranks
        if job.is_quiet or len(ranks) < 2 or any(rank.state in ("T", "t") for rank in ranks):
            continue
        silent = [rank for rank in ranks if _is_silent(rank, window)]
        active = [rank for rank in ranks if _is_active(rank, window)]
        if silent and len(silent) <= max(1, len(ranks) // 4) and 2 * len(active) >= len(ranks):
            yield from (_silent(job, rank, len(active)) for rank in silent)


def _utilization(rank: RankSample, window: Window) -> float | None:
    gpu = None if rank.gpu_index is None else window.gpus.get(rank.gpu_index)
    return None if gpu is None else gpu.sample.gpu_utilization


def _is_silent(rank: RankSample, window: Window) -> bool:
    return (
        rank.cpu_utilization is not None
        and rank.cpu_utilization <= SILENT_CORES
        and (_utilization(rank, window) or 0.0) <= IDLE
    )


def _is_active(rank: RankSample, window: Window) -> bool:
    return (rank.cpu_utilization or 0.0) >= SPINNING_CORES or (_utilization(rank, window) or 0.0) >= BUSY


def _silent(job: JobWindow, rank: RankSample, active: int) -> Finding:
    where = "" if rank.gpu_index is None else f", GPU {rank.gpu_index}"
    return Finding(
        code="straggler",
        severity="error",
        subject=f"rank {rank.rank}",
        summary=f"rank {rank.rank} of {job.name} (pid {rank.pid}{where}) does nothing while {active} of its peers work or wait for it",
        evidence=joined(f"{rank.cpu_utilization:.2f} cores", f"state {rank.state}", f"{len(job.sample.ranks)} ranks"),
        advice=f"on the host, `py-spy dump --pid {rank.pid}` shows where it stands and `cat /proc/{rank.pid}/wchan` what it waits "
        "for in the kernel; state D is a disk or a driver that does not answer",
        job_id=job.sample.job_id,
        kind="silent",
        hold_s=SILENT_HOLD_S,
        lapse_s=2.0,
    )


def busy_not_working(window: Window) -> Iterator[Finding]:
    """Devices that are all busy, with nothing coming of it."""
    for job in window.jobs.values():
        devices = [gpu for gpu in window.devices_of(job.sample.job_id) if gpu.utilization.value is not None]
        spinning = [gpu for gpu in devices if _spins(gpu)]
        shown = None if job.is_quiet or 2 * len(spinning) <= len(devices) else _stands_still(window, job)
        if shown is not None:
            yield Finding(
                code="busy_not_working",
                severity="error",
                subject=job.sample.job_id,
                summary=f"{len(spinning)} devices of {job.name} are busy and nothing comes of it",
                evidence=joined(*_spin_figures(spinning), shown.words),
                advice="collective calls that wait for a peer look like this: `roost logs "
                f"{job.sample.job_id}` and NCCL_DEBUG=INFO name the collective, `py-spy dump --pid PID` of each rank the one "
                "that is elsewhere; NCCL_P2P_DISABLE=1 helps where reads between devices hang",
                job_id=job.sample.job_id,
                hold_s=HUNG_HOLD_S,
                lapse_s=2.0,
                at=window.sample.sampled_at - shown.seconds,
            )


def _spins(gpu: GpuWindow) -> bool:
    if (gpu.utilization.value or 0.0) < HUNG_UTILIZATION:
        return False
    limit, power, memory = gpu.sample.power_limit_watts, gpu.power.value, gpu.memory_utilization.value
    if power is not None and limit and power >= HUNG_POWER * limit:
        return False
    return memory is None or memory < HUNG_MEMORY


class _Standstill(NamedTuple):
    """How long nothing has come of it, and by what that is seen."""

    seconds: float
    words: str


def _stands_still(window: Window, job: JobWindow) -> _Standstill | None:
    """By what the job is seen to stand still: its own pace, that of the jobs that it serves, or its tokens."""
    engine = window.engines.get(job.sample.job_id)
    if engine is not None:
        if engine.stalled_s >= HUNG_SERVER_S:
            asked, stalled = engine.sample.running_requests, duration_text(engine.stalled_s)
            return _Standstill(engine.stalled_s, f"{asked} requests at work without a token for {stalled}")
        served = [other for other in window.of_run(job) if other.sample.activity in ("extract", "evaluate")]
        waiting = [other for other in served if _is_late(other, HUNG_AGE_S, HUNG_PERIODS)]
        return None if not waiting or len(waiting) < len(served) else _standstill_of(waiting[0])
    if _is_late(job, HUNG_AGE_S, HUNG_PERIODS):
        return _standstill_of(job)
    return None


def _is_late(job: JobWindow, age_s: float, periods: float) -> bool:
    return job.is_due and job.stuck_s > max(age_s, periods * (job.sample.progress_period_s or 0.0))


def _standstill_of(job: JobWindow) -> _Standstill:
    return _Standstill(job.stuck_s, _age_text(job))


def _age_text(job: JobWindow) -> str:
    period = job.sample.progress_period_s or 0.0
    return f"{job.name} without progress for {duration_text(job.stuck_s)}, usually {period:.3g} s"


def _spin_figures(spinning: list[GpuWindow]) -> list[str | None]:
    powers = [gpu.power.value for gpu in spinning if gpu.power.value is not None]
    limits = [gpu.sample.power_limit_watts for gpu in spinning if gpu.sample.power_limit_watts is not None]
    memory = [gpu.memory_utilization.value for gpu in spinning if gpu.memory_utilization.value is not None]
    return [
        f"GPU {list_text(gpu.sample.gpu_index for gpu in spinning)} at {range_text(gpu.utilization.value or 0.0 for gpu in spinning)}",
        f"{max(powers):.0f} W at most of {max(limits):.0f} W" if powers and limits else None,
        f"memory active {share_text(max(memory))} of the time" if memory else None,
    ]


def no_progress(window: Window) -> Iterator[Finding]:
    """Jobs with a pace that told no progress for many times their usual time."""
    for job in window.jobs.values():
        sample = job.sample
        if _is_late(job, STUCK_AGE_S, STUCK_PERIODS):
            yield Finding(
                code="no_progress",
                severity="error",
                subject=sample.job_id,
                summary=f"{job.name} ({sample.activity}) has not got on for {duration_text(job.stuck_s)}",
                evidence=joined(
                    f"usually every {sample.progress_period_s:.3g} s",
                    None if sample.cpu_utilization is None else f"{sample.cpu_utilization:.1f} cores at work",
                    _devices_text(window.devices_of(sample.job_id)),
                ),
                advice=f"`roost logs {sample.job_id}` says what it does; nothing at work is a lock or a disk that does not answer, "
                "a core at work a loop (`py-spy dump --pid PID` on the host)",
                job_id=sample.job_id,
            )


def _devices_text(devices: list[GpuWindow]) -> str | None:
    known = [gpu.utilization.value for gpu in devices if gpu.utilization.value is not None]
    return f"devices at {share_text(sum(known) / len(known))}" if known else None


class _Bad(NamedTuple):
    seen_s: float
    job: JobSample


class LossMemory:
    """Trainings whose loss was not finite; they end with it, and stay told for a while unless the run trains again."""

    def __init__(self) -> None:
        self._bad: dict[str, _Bad] = {}

    def advance(self, sample: TelemetrySample, clock_s: float) -> None:
        """Take the jobs of now."""
        for job in sample.jobs:
            if job.loss_is_finite is False:
                self._bad[job.job_id] = _Bad(clock_s, job)
            elif job.loss_is_finite:
                self._bad = {
                    job_id: bad
                    for job_id, bad in self._bad.items()
                    if job_id != job.job_id and (bad.job.run_id is None or bad.job.run_id != job.run_id)
                }
        if self._bad:
            self._bad = {job_id: bad for job_id, bad in self._bad.items() if clock_s - bad.seen_s <= NOT_FINITE_KEPT_S}

    def findings(self) -> Iterator[Finding]:
        """What is remembered."""
        for job_id, bad in self._bad.items():
            yield Finding(
                code="loss_not_finite",
                severity="error",
                subject=job_id,
                summary=f"the loss of {bad.job.agent or job_id} is not finite",
                evidence="the last step's loss is NaN or infinite",
                advice="the last checkpoint is sound: lower training.learning_rate or training.gradient_clip and start the run "
                "again; if it comes back at the same step, look at the samples that the job's failure names",
                job_id=job_id,
            )


def _ranks_text(ranks: list[RankSample]) -> str:
    names = [
        f"{rank.rank} (pid {rank.pid}{'' if rank.gpu_index is None else f', GPU {rank.gpu_index}'})" for rank in ranks
    ]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {list_text(names)}"
