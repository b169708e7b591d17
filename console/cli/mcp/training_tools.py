"""Tools for trainings by themselves: plan, start, resume, export, compare."""

from typing import Annotated

from msgspec import Meta

from console import operations_training
from console.cli.mcp.arguments import Arguments, Key, RunFile
from console.cli.mcp.tool import Tell, Tool, looks, starts
from console.documents import JobOutcome, StartedTraining
from console.operations import Session
from remote.protocol.ids import JobId
from remote.protocol.specs import DrafterLayout

TrainingId = Annotated[JobId, Meta(description="A training, or the run that it is part of.")]


class PlanningTraining(RunFile, frozen=True, kw_only=True):
    """A run's training; what is named stands in for the run's own."""

    store: Annotated[str | None, Meta(description="Hidden states on the host.")] = None
    mapping: Annotated[str | None, Meta(description="The draft vocabulary on the host.")] = None
    output: Annotated[str | None, Meta(description="Where `drafter` and `checkpoints` go.")] = None


class StartingTraining(PlanningTraining, frozen=True, kw_only=True):
    """A run's training, to be started."""

    key: Key


class ResumingTraining(Arguments, frozen=True, kw_only=True):
    """A training that ended before its last step."""

    job_id: TrainingId
    ranks: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="On so many devices; null: as before.")] = None
    key: Key


class ExportingDrafter(Arguments, frozen=True, kw_only=True):
    """Which checkpoint's drafter to write where."""

    job_id: TrainingId
    directory: Annotated[str, Meta(description="Where the drafter goes, on the host; nothing may lie there.")]
    step: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="Null: the best one.")] = None
    layout: DrafterLayout = "sglang"
    key: Key


class OfTrainings(Arguments, frozen=True, kw_only=True):
    """Trainings to be held side by side."""

    job_ids: Annotated[list[TrainingId], Meta(min_length=1)]


async def _plan(session: Session, asked: PlanningTraining, _: Tell) -> object:
    return await operations_training.plan_training(
        session, asked.run_file, asked.overrides, store=asked.store, mapping=asked.mapping, output=asked.output
    )


async def _start(session: Session, asked: StartingTraining, _: Tell) -> object:
    plan = await operations_training.plan_training(
        session, asked.run_file, asked.overrides, store=asked.store, mapping=asked.mapping, output=asked.output
    )
    job = await operations_training.start_training(session, plan, op_id=asked.key)
    return StartedTraining(plan=plan, job=job)


async def _resume(session: Session, asked: ResumingTraining, _: Tell) -> object:
    job = await operations_training.resume_training(session, asked.job_id, ranks=asked.ranks, op_id=asked.key)
    return StartedTraining(plan=None, job=job)


async def _export(session: Session, asked: ExportingDrafter, _: Tell) -> object:
    job = await operations_training.start_export(
        session, asked.job_id, asked.directory, step=asked.step, layout=asked.layout, op_id=asked.key
    )
    return JobOutcome(job=job)


async def _compare(session: Session, asked: OfTrainings, _: Tell) -> object:
    return await operations_training.compare_trainings(session, asked.job_ids)


TRAINING_TOOLS: tuple[Tool, ...] = (
    looks(
        "plan_training",
        "The training of a run by itself: on which store and mapping, where to, whether it begins or goes on, what stands in the way. Starts nothing.",
        PlanningTraining,
        "training_plan",
        _plan,
    ),
    starts(
        "start_training",
        "Train as a run's [training] says, as a job of its own; where checkpoints of the same training lie it goes on from the newest.",
        StartingTraining,
        "training",
        _start,
    ),
    starts(
        "resume_training",
        "Go on with a training that was stopped, failed or was lost, from its newest sound checkpoint, as a new job.",
        ResumingTraining,
        "training",
        _resume,
    ),
    starts(
        "export_drafter",
        "Write the drafter of a training's checkpoint, as a job, also while it trains.",
        ExportingDrafter,
        "export",
        _export,
    ),
    looks(
        "compare_trainings",
        "Figures of several trainings, and the settings that differ.",
        OfTrainings,
        "training_comparison",
        _compare,
    ),
)
"""Tools for trainings."""
