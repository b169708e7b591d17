"""Servers that accept few drafts, fall behind, or do not answer; pure rules."""

from collections.abc import Iterator
from itertools import pairwise

from remote.telemetry.diagnosis_holding import Finding
from remote.telemetry.diagnosis_window import (
    LOW_ACCEPTANCE,
    QUEUE_SPAN_S,
    QUEUE_STEP_S,
    EngineWindow,
    JobWindow,
    Window,
)
from remote.telemetry.figures import duration_text, joined, share_text

ACCEPTANCE_HOLD_S = 60.0
ACCEPTANCE_KEPT_S = 300.0
"""A server that rests keeps its last acceptance; what was low stays told for so long without traffic."""

QUEUE_GROWTH, QUEUE_RISES, FLAT_DECODE = 8, 0.8, 1.1
"""More requests than a burst of one client, most readings higher than the one before, and no more tokens for it."""

SILENT_HOLD_S = 30.0
"""Metrics come from the server's HTTP process, which long prefills do not hold up; a garbage collection or a swap may."""

RESTART_KEPT_S = 1800.0
"""Who looks later learns that there was a death, and why; the server itself answers again by then."""

_CAUSES = (
    "usual causes: the layer ids that were captured differ from eagle_aux_hidden_state_layer_ids in the drafter's config.json; "
    "d2t/t2d of the drafter are not those of its training (`roost vocabulary validate DIR`); another chat template than in "
    "training; the final states taken before the norm instead of after it"
)


def low_acceptance(window: Window) -> Iterator[Finding]:
    """Servers and evaluations whose drafter is hardly ever right."""
    judged: set[str | None] = set()
    for job_id, engine in window.engines.items():
        if engine.sample.acceptance_length is None:
            continue
        job = window.jobs.get(job_id)
        judged.add(None if job is None else job.sample.run_id)
        if engine.low_acceptance_s >= ACCEPTANCE_HOLD_S and engine.quiet_s <= ACCEPTANCE_KEPT_S:
            traffic = f"over {duration_text(engine.low_acceptance_s)} of decoding"
            rate = engine.sample.acceptance_rate
            yield _low(
                job_id,
                "server" if job is None else job.name,
                engine.sample.acceptance_length,
                joined(traffic, None if rate is None else f"{share_text(rate)} of the drafted tokens accepted"),
                hold_s=0.0,
            )
    for job in window.jobs.values():
        length = job.sample.acceptance_length
        served_here = job.sample.run_id is not None and job.sample.run_id in judged
        if length is not None and length < LOW_ACCEPTANCE and job.sample.activity == "evaluate" and not served_here:
            yield _low(job.sample.job_id, job.name, length, "over the prompts done so far", hold_s=ACCEPTANCE_HOLD_S)


def _low(job_id: str, name: str, length: float, evidence: str, hold_s: float) -> Finding:
    return Finding(
        code="low_acceptance",
        severity="warning",
        subject=job_id,
        summary=f"the drafter of {name} is hardly ever right: {length:.2f} tokens a verification",
        evidence=joined(f"acceptance length {length:.2f}, 1.00 is a drafter that is never right", evidence),
        advice=_CAUSES,
        job_id=job_id,
        hold_s=hold_s,
        release_s=20.0,
    )


def queue_growing(window: Window) -> Iterator[Finding]:
    """Servers whose queue rises steadily while they give no more tokens for it."""
    for job_id, engine in window.engines.items():
        points = list(engine.queue)
        if len(points) < 2 or points[-1][0] - points[0][0] < QUEUE_SPAN_S - QUEUE_STEP_S:
            continue
        first, last = points[0][1], points[-1][1]
        pairs = list(pairwise(points))
        rises = sum(after[1] > before[1] for before, after in pairs)
        if last - first >= QUEUE_GROWTH and rises >= QUEUE_RISES * len(pairs) and _is_flat(engine):
            yield Finding(
                code="queue_growing",
                severity="warning",
                subject=job_id,
                summary=f"the queue of {_name(window.jobs.get(job_id))} grows: it is asked more than it can answer",
                evidence=joined(
                    f"{first} to {last} requests wait, within {duration_text(points[-1][0] - points[0][0])}",
                    None if engine.sample.running_requests is None else f"{engine.sample.running_requests} run",
                    None if engine.decode.value is None else f"{engine.decode.value:.0f} tok/s",
                    None
                    if engine.sample.cache_usage is None
                    else f"cache {share_text(engine.sample.cache_usage)} full",
                ),
                advice="send less at once (extraction.concurrency), or allow more at once (max_running_requests of its engine in "
                "the run file) where the cache has room; a full cache needs a higher memory_fraction or a shorter context_length there",
                job_id=job_id,
                release_s=60.0,
            )


def _is_flat(engine: EngineWindow) -> bool:
    rates = [rate for _, _, rate in engine.queue if rate is not None]
    half = len(rates) // 2
    if half == 0:
        return True
    earlier, later = sum(rates[:half]) / half, sum(rates[-half:]) / half
    return later <= FLAT_DECODE * earlier


def _name(job: JobWindow | None) -> str:
    return "the server" if job is None else job.name


def engine_silent(window: Window) -> Iterator[Finding]:
    """Servers that were ready and do not answer."""
    for job_id, engine in window.engines.items():
        job = window.jobs.get(job_id)
        if engine.sample.is_answering or (job is not None and job.is_quiet):
            continue
        yield Finding(
            code="engine_silent",
            severity="error",
            subject=job_id,
            summary=f"{_name(job)} ({engine.sample.engine}) does not answer any more",
            evidence=joined(
                "no answer to /metrics",
                None if job is None else f"{job.sample.process_count} processes live",
                None
                if job is None or job.sample.cpu_utilization is None
                else f"{job.sample.cpu_utilization:.1f} cores at work",
            ),
            advice=f"`roost server request {job_id} /ready` asks it, `roost logs {job_id}` says what it did last; if it stays "
            f"silent, `roost stop {job_id} --confirm {job_id}` and start the run again",
            job_id=job_id,
            hold_s=SILENT_HOLD_S,
            release_s=3.0,
        )


def server_restarted(window: Window) -> Iterator[Finding]:
    """Servers whose engine died and was launched again."""
    for job in window.jobs.values():
        sample = job.sample
        if sample.restarted_age_s is None or sample.restarted_age_s > RESTART_KEPT_S:
            continue
        times = "once" if sample.restarts == 1 else f"{sample.restarts} times"
        yield Finding(
            code="server_restarted",
            severity="warning",
            subject=sample.job_id,
            summary=f"the engine of {job.name} died and was launched again",
            evidence=joined(
                f"{times}, last {duration_text(sample.restarted_age_s)} ago",
                sample.restarted_because.partition("\n")[0].partition(". It said last")[0],
            ),
            advice=f"what was under way there was lost; `roost logs {sample.job_id}` has each death with what the engine said last",
            job_id=sample.job_id,
        )
