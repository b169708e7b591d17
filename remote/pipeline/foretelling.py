"""How long the stages of a plan take, by what runs that did the like took on this host."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from remote.jobs.store import JobStore
from remote.pipeline.children import child_id
from remote.pipeline.plan import UNKNOWN_TIME
from remote.pipeline.timings import Span, time_evaluation, time_extraction, time_training
from remote.protocol.jobs import Finished, Job
from remote.protocol.progress import ProgressRecord, StageChanged, StageDone, StageName, StagePending
from remote.protocol.reports import RunPlan, StagePlan
from remote.protocol.run import EngineConfig, RunConfig
from remote.protocol.specs import RunSpec

_MOST_RUNS = 20
"""The newest; what ran longer ago ran on another machine, as often as not."""
_PAGE = 1000


class Worked(NamedTuple):
    """A job of a run: when it began and ended, and what it told."""

    span: Span
    records: list[ProgressRecord]


class PastRun(NamedTuple):
    """A run that was: how long each stage took that it finished, the bytes that were planned of each, and its jobs by their names."""

    job_id: str
    run: RunConfig
    seconds: dict[StageName, float]
    planned_bytes: dict[StageName, int | None]
    job: Callable[[str], Worked | None]


def past_runs(store: JobStore) -> Iterator[PastRun]:
    """The newest runs of the host, newest first; each is read when it is asked for."""
    jobs = store.list()
    by_id = {job.job_id: job for job in jobs}
    runs = [(job, job.spec.run) for job in jobs if isinstance(job.spec, RunSpec)]
    for job, run in runs[:_MOST_RUNS]:
        yield _read_run(store, job, run, by_id)


def foretell(plan: RunPlan, past: Iterator[PastRun] | Sequence[PastRun]) -> RunPlan:
    """The plan with the seconds of every stage that one of the `past` runs, newest first, did the like of; what it fingerprints stays."""
    known: dict[StageName, tuple[float, str]] = {}
    wanted = {stage.stage: stage for stage in plan.stages if stage.action == "run"}
    for one in past:
        if len(known) == len(wanted):
            break
        for name, stage in wanted.items():
            if name not in known and name in one.seconds and _is_alike(name, one.run, plan.run):
                seconds = _scaled(stage, one, plan.run)
                known |= {} if seconds is None else {name: (seconds, one.job_id)}
    stages = [_with_seconds(stage, known.get(stage.stage)) for stage in plan.stages]
    all_known = [stage.seconds for stage in stages if stage.seconds is not None]
    total = sum(all_known) if len(all_known) == len(stages) else None
    risks = plan.risks if total is None else [risk for risk in plan.risks if risk != UNKNOWN_TIME]
    return msgspec.structs.replace(plan, stages=stages, seconds=total, risks=risks)


def _with_seconds(stage: StagePlan, known: tuple[float, str] | None) -> StagePlan:
    if stage.action == "skip":
        return msgspec.structs.replace(stage, seconds=0.0)
    if known is None:
        return stage
    return msgspec.structs.replace(stage, seconds=known[0], seconds_from=known[1])


def _is_alike(stage: StageName, past: RunConfig, now: RunConfig) -> bool:
    """Whether both do the stage's work at the same pace, however much of it there is."""
    return past.target.model == now.target.model and _pace(stage, past) == _pace(stage, now)


def _pace(  # noqa: PLR0911 - one for each stage
    stage: StageName, run: RunConfig
) -> list[object]:
    """What decides how fast the stage goes."""
    layers = len(run.extraction.layer_ids)
    served = [_engine(run.serving_engine), run.speculation, run.evaluation.dtype, run.evaluation.attention_backend]
    asked = msgspec.structs.replace(run.evaluation, prompts=1, near_tie_logit_gap=0.0)
    match stage:
        case "server":
            return [_engine(run.engine), layers]
        case "extraction":
            return [_engine(run.engine), layers, run.extraction.concurrency]
        case "vocabulary":
            return [run.vocabulary.source is None, run.vocabulary.draft_vocab_size]
        case "training":
            return [layers, run.vocabulary.draft_vocab_size, _training(run)]
        case "serving":
            return served
        case "evaluation":
            return [*served, asked]
        case _:
            return []


def _engine(engine: EngineConfig) -> EngineConfig:
    return msgspec.structs.replace(engine, ready_timeout_s=1.0, restarts=0)


def _training(run: RunConfig) -> dict[str, object]:
    kept = msgspec.to_builtins(run.training)
    amount_or_luck = ("steps", "checkpoint_every", "checkpoints_kept", "log_every", "seed", "init_from")
    rates = ("learning_rate", "warmup_fraction", "weight_decay", "gradient_clip", "ttt_decay")
    return {key: value for key, value in kept.items() if key not in (*amount_or_luck, *rates)}


def _scaled(stage: StagePlan, past: PastRun, now: RunConfig) -> float | None:
    """The seconds of the past stage, the part of it that grows with the work in proportion; None where that part is not known."""
    took = past.seconds[stage.stage]
    match stage.stage:
        case "extraction":
            before = past.planned_bytes.get("extraction")
            worked = past.job("extraction")
            timed = None if worked is None else time_extraction(worked.records)
            if timed is None or not before or stage.bytes_needed is None:
                return None
            whole_s = timed.seconds * timed.tokens_total / timed.tokens
            return max(0.0, took - timed.seconds) + whole_s * stage.bytes_needed / before
        case "training":
            return _trained(past, now)
        case "evaluation":
            arms = [past.job(f"evaluation-{arm}") for arm in ("drafter", "baseline")]
            timings = [None if worked is None else time_evaluation(worked.records) for worked in arms]
            grows = [timed.asked_s for timed in timings if timed is not None]
            if len(grows) < len(timings):
                return None
            return took + sum(grows) * (now.evaluation.prompts / past.run.evaluation.prompts - 1)
        case _:
            return took


def _trained(past: PastRun, now: RunConfig) -> float | None:
    """By the steps that the past training made, which are not all of them where it went on from a checkpoint."""
    worked = past.job("training")
    timed = None if worked is None else time_training(*worked)
    if timed is None:
        return None
    steps, saved = now.training.steps, -(-now.training.steps // now.training.checkpoint_every)
    step = sum(timed.steps) / len(timed.steps)
    return timed.rest_s + steps * step + saved * (timed.save_s + timed.measure_s)


def _read_run(store: JobStore, job: Job, run: RunConfig, jobs: dict[str, Job]) -> PastRun:
    seconds: dict[StageName, float] = {}
    planned: dict[StageName, int | None] = {}
    for record in _records(store, job.job_id):
        match record.event:
            case StageChanged(stage=stage, state=StageDone(started_at=start, ended_at=end)):
                seconds[stage] = max(0.0, end - start)
            case StageChanged(stage=stage, state=StagePending(bytes_to_write=size)):
                planned[stage] = size
            case _:
                pass

    def read_job(name: str) -> Worked | None:
        found = jobs.get(child_id(job.job_id, name))
        if found is None or not isinstance(found.state, Finished) or found.state.outcome != "succeeded":
            return None
        return Worked(Span(found.state.started_at, found.state.ended_at), _records(store, found.job_id))

    return PastRun(job.job_id, run, seconds, planned, read_job)


def _records(store: JobStore, job_id: str) -> list[ProgressRecord]:
    records: list[ProgressRecord] = []
    while page := store.read_progress(job_id, records[-1].seq if records else 0, _PAGE):
        records += page
    return records
