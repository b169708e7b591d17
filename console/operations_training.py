"""Trainings by themselves: to plan, start and go on with one, to export one of its checkpoints, and to compare several."""

import msgspec

from console.errors import ConsoleError, UsageError
from console.operations import PLAN_TIMEOUT_S, Session, ask, get_job, list_jobs, read_progress, start_job, was_started
from console.state.training_comparison import Training, TrainingRecord, compare
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import JobId, OpId
from remote.protocol.jobs import Finished, Job, is_over
from remote.protocol.progress import ProgressRecord
from remote.protocol.reports import TrainingPlan
from remote.protocol.requests import PlanTraining
from remote.protocol.specs import DrafterExportSpec, DrafterLayout, RunSpec, TrainingSpec


async def plan_training(
    session: Session,
    document: str,
    overrides: dict[str, str] | None = None,
    *,
    store: str | None = None,
    mapping: str | None = None,
    output: str | None = None,
) -> TrainingPlan:
    """Resolve on the host the training of a run file by itself: on which store and mapping, where to, what stands in the way.

    `store`, `mapping` and `output` stand in for the run's own.
    """
    request = PlanTraining(document=document, overrides=overrides or {}, store=store, mapping=mapping, output=output)
    return await ask(session, request, TrainingPlan, timeout_s=PLAN_TIMEOUT_S)


async def start_training(session: Session, plan: TrainingPlan, *, op_id: OpId | None = None) -> Job:
    """Start a planned training as a job of its own; a plan with problems is refused."""
    stem = f"training-{plan.run}"
    if plan.problems and not await was_started(session, stem, op_id):
        raise _unmet(
            f"the training of {plan.run} cannot start: {'; '.join(plan.problems)}",
            hint="mend what is named, or change the run file",
        )
    return await start_job(session, stem, plan.spec, op_id=op_id)


async def resume_training(
    session: Session, job_id: JobId, *, ranks: int | None = None, op_id: OpId | None = None
) -> Job:
    """Go on with a training that ended before its last step, from its newest checkpoint, on as many `ranks` as wanted.

    Raises a precondition for one that goes on by itself or is done.
    """
    job, spec = await find_training(session, job_id)
    if ranks is not None:
        spec = msgspec.structs.replace(spec, training=msgspec.structs.replace(spec.training, ranks=ranks))
    if not await was_started(session, "training", op_id):
        _require_ended_early(job, spec)
    return await start_job(session, "training", spec, op_id=op_id)


def _require_ended_early(job: Job, spec: TrainingSpec) -> None:
    if not is_over(job.state):
        raise _unmet(f"{job.job_id} has not ended", next_command=f"roost wait {job.job_id}")
    if isinstance(job.state, Finished) and job.state.outcome == "succeeded":
        raise _unmet(f"{job.job_id} is done: its drafter is {spec.drafter}", next_command=f"roost status {job.job_id}")


async def start_export(
    session: Session,
    job_id: JobId,
    directory: str,
    *,
    step: int | None = None,
    layout: DrafterLayout = "sglang",
    op_id: OpId | None = None,
) -> Job:
    """Start writing the drafter of a training's checkpoint into `directory` on the host: that of `step`, else the best."""
    _, training = await find_training(session, job_id)
    spec = DrafterExportSpec(training=training, directory=directory, step=step, layout=layout)
    return await start_job(session, "export", spec, op_id=op_id)


async def compare_trainings(session: Session, job_ids: list[JobId]) -> list[TrainingRecord]:
    """What became of several trainings, all jobs of each together, and in which settings they differ, in the order given."""
    found = [await find_training(session, job_id) for job_id in job_ids]
    if len({_place(spec) for _, spec in found}) < len(found):
        raise UsageError("the same training is named twice")
    jobs = await list_jobs(session)
    return compare([await _read(session, job, spec, jobs) for job, spec in found])


def _place(spec: TrainingSpec) -> tuple[str, str]:
    """What jobs have in common that go on with each other's work."""
    return spec.checkpoints, spec.fingerprint


async def _read(session: Session, job: Job, spec: TrainingSpec, jobs: list[Job]) -> Training:
    parts = [one for one in jobs if isinstance(one.spec, TrainingSpec) and _place(one.spec) == _place(spec)]
    parts = sorted(parts, key=lambda part: part.created_at) or [job]
    return Training(spec, [(part, await _all_progress(session, part.job_id)) for part in parts])


async def find_training(session: Session, job_id: JobId) -> tuple[Job, TrainingSpec]:
    """A training by its own job, or by the run that it is part of (the newest there); raises a precondition where there is none."""
    job = await get_job(session, job_id)
    if isinstance(job.spec, RunSpec):
        parts = [part for part in await list_jobs(session) if part.run_id == job_id]
        job = next((part for part in parts if isinstance(part.spec, TrainingSpec)), job)
    if not isinstance(job.spec, TrainingSpec):
        what = "has not trained yet" if isinstance(job.spec, RunSpec) else f"is no training but a {job.agent} job"
        raise _unmet(f"{job_id} {what}", next_command="roost jobs")
    return job, job.spec


async def _all_progress(session: Session, job_id: JobId) -> list[ProgressRecord]:
    records: list[ProgressRecord] = []
    while page := await read_progress(session, job_id, after_seq=records[-1].seq if records else 0):
        records += page
    return records


def _unmet(message: str, hint: str | None = None, next_command: str | None = None) -> ConsoleError:
    return ConsoleError(ErrorInfo(code=ErrorCode.PRECONDITION, message=message, hint=hint, next_command=next_command))
