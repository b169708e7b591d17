"""`roost training`: plan, start, resume, export, compare."""

from typing import Annotated, NoReturn

import typer

from console import operations, operations_training
from console.cli.jobs import carry_on, exit_code_of
from console.cli.options import ACTOR, Host, Json, Key, NoWait, Set, Timeout
from console.cli.output import execute, print_document, print_text
from console.cli.run import RunFile, read_overrides
from console.cli.text import state_words
from console.cli.training_text import comparison_lines, training_plan_lines
from console.cli.verbs import Verbs
from console.documents import JobOutcome, StartedTraining
from console.state.training_comparison import TrainingRecord
from remote.protocol.jobs import Job, is_over
from remote.protocol.reports import TrainingPlan
from remote.protocol.specs import DrafterLayout

app = Verbs(
    help="Trainings by themselves: plan, start, go on with one, export a checkpoint, compare several.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Store = Annotated[
    str | None, typer.Option("--store", metavar="DIR", help="Train on this store on the host instead of the run's own.")
]
Mapping = Annotated[
    str | None, typer.Option("--mapping", metavar="DIR", help="With this draft vocabulary instead of the run's own.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", metavar="DIR", help="Where `drafter` and `checkpoints` go instead of the run's directory."
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Follow it to its end.")]
TrainingName = Annotated[str, typer.Argument(metavar="JOB", help="A training, or the run that it is part of.")]


@app.command(short_help="Show what a training would do, without doing it.")
def plan(
    source: RunFile,
    store: Store = None,
    mapping: Mapping = None,
    output: Output = None,
    host: Host = operations.EMBEDDED,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show the training of a run by itself: on which store and mapping, where to, whether it begins or goes on; exit 5 with what
    stands in the way.
    """

    async def work() -> TrainingPlan:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_training.plan_training(
                session, document, overrides, store=store, mapping=mapping, output=output
            )

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("training_plan", found)
    else:
        print_text("\n".join(training_plan_lines(found)))
    if found.problems:
        raise typer.Exit(5)


@app.command(short_help="Train a drafter on a store and a mapping that are there.")
def start(
    source: RunFile,
    store: Store = None,
    mapping: Mapping = None,
    output: Output = None,
    host: Host = operations.EMBEDDED,
    settings: Set = [],  # noqa: B006
    timeout: Timeout = None,
    wait: Wait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Train as a run's `[training]` says, on a store and a mapping that are there, as a job of its own; a run takes its drafter for
    its own. Where checkpoints of the same training lie it goes on from the newest.
    """

    async def work() -> tuple[TrainingPlan, Job]:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            found = await operations_training.plan_training(
                session, document, overrides, store=store, mapping=mapping, output=output
            )
            job = await operations_training.start_training(session, found, op_id=key)
            return found, await carry_on(session, job, no_wait=not wait, timeout_s=timeout)

    found, job = execute(work(), as_json=as_json)
    if as_json:
        print_document("training", StartedTraining(plan=found, job=job))
    _end(job, as_json=as_json)


@app.command(short_help="Go on with a training that ended early.")
def resume(
    job_id: TrainingName,
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, help="On so many devices; as before unless said.")
    ] = None,
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    wait: Wait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Go on, as a new job, with a training that was stopped, failed or was lost, from its newest sound checkpoint."""

    async def work() -> Job:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations_training.resume_training(session, job_id, ranks=ranks, op_id=key)
            return await carry_on(session, job, no_wait=not wait, timeout_s=timeout)

    job = execute(work(), as_json=as_json)
    if as_json:
        print_document("training", StartedTraining(plan=None, job=job))
    _end(job, as_json=as_json)


@app.command(short_help="Write a checkpoint's drafter.")
def export(
    job_id: TrainingName,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Where the drafter goes, on the host.")],
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="The checkpoint of this step; the best one unless said.")
    ] = None,
    layout: Annotated[
        DrafterLayout, typer.Option("--layout", help="As SGLang and vLLM serve it, or as speculators keeps it.")
    ] = "sglang",
    host: Host = operations.EMBEDDED,
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Write the drafter of a training's checkpoint, also while it trains or when it never ended."""

    async def work() -> Job:
        async with operations.open_host(host, actor=ACTOR) as session:
            job = await operations_training.start_export(
                session, job_id, directory, step=step, layout=layout, op_id=key
            )
            return await carry_on(session, job, no_wait=no_wait, timeout_s=timeout)

    job = execute(work(), as_json=as_json)
    if as_json:
        print_document("export", JobOutcome(job=job))
    _end(job, as_json=as_json)


@app.command(short_help="Set trainings side by side.")
def compare(
    job_ids: Annotated[list[str], typer.Argument(metavar="JOB...", help="Trainings, or runs that they are part of.")],
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show how trainings went and in which settings they differ; with --json every logged step and measurement of each."""

    async def work() -> list[TrainingRecord]:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_training.compare_trainings(session, job_ids)

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("training_comparison", found)
    else:
        print_text("\n".join(comparison_lines(found)))


def _end(job: Job, *, as_json: bool) -> NoReturn:
    if not as_json:
        print_text(f"{job.job_id}: {state_words(job.state)}" if is_over(job.state) else job.job_id)
        for output in job.result.outputs if job.result is not None else []:
            print_text(f"  {output.kind} {output.path}")
    raise typer.Exit(exit_code_of(job))
