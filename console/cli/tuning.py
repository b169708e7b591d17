"""`roost server tune` and `roost server tuning`."""

from pathlib import Path
from typing import Annotated

import typer

from console import operations, operations_server
from console.cli.jobs import JobName, exit_code_of, follow_until_over
from console.cli.options import ACTOR, Host, Json, Key, Set, Timeout
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.run import RunFile, read_overrides
from console.cli.server_text import tuning_lines, tuning_plan_lines
from console.config.run_file import obstacle_to_writing
from console.documents import StartedTuning
from console.state.settings import RECAPTURES, settings_words
from remote.protocol.jobs import Job
from remote.protocol.tuning import TuningPlan, TuningReport


def tune(
    source: RunFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be tried and start nothing.")] = False,  # noqa: FBT002
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end and print what it found.")] = False,  # noqa: FBT002
    apply: Annotated[  # noqa: FBT002
        bool, typer.Option("--apply", help="With --wait: write the winner's settings into the run file.")
    ] = False,
    host: Host = operations.EMBEDDED,
    settings: Set = [],  # noqa: B006
    timeout: Timeout = None,
    key: Key = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Find the settings with which a run's server is fastest, among those that its [tuning] names.

    Every combination serves and is measured on a few prompts, the faster half on more, until the last two meet the run file's
    own settings. Started again after a stop, it goes on where it was.
    """
    if apply:
        _require_a_file(source, wait=wait)

    async def work() -> tuple[TuningPlan, Job | None, TuningReport | None]:
        document, overrides = operations.run_document(source), read_overrides(settings)
        async with operations.open_host(host, actor=ACTOR) as session:
            found = await operations_server.plan_tuning(session, document, overrides)
            if dry_run:
                return found, None, None
            job = await operations_server.start_tuning(session, found, op_id=key)
            narrate(f"started {job.job_id} on {host}: {found.launches} servers, one after the other")
            if not wait:
                return found, job, None
            job = await follow_until_over(session, job.job_id, timeout_s=timeout)
            done = exit_code_of(job) == 0
            return found, job, await operations_server.read_tuning(session, job.job_id) if done else None

    found, job, report = execute(work(), as_json=as_json)
    if as_json:
        print_document("tuning", StartedTuning(plan=found, job=job, report=report))
    elif job is None:
        print_text("\n".join(tuning_plan_lines(found)))
    else:
        print_text("\n".join(tuning_lines(report)) if report else job.job_id)
    if apply and report is not None:
        _apply(report, Path(source))
    if job is None and found.problems:
        raise typer.Exit(5)
    if wait and job is not None:
        raise typer.Exit(exit_code_of(job))


def _require_a_file(source: str, *, wait: bool) -> None:
    if not wait:
        raise typer.BadParameter("--apply needs --wait; `roost server tuning JOB --apply FILE` does it later")
    if not Path(source).is_file():
        raise typer.BadParameter(f"{source} is a preset: write to a run file that begins with `preset = '{source}'`")
    if (obstacle := obstacle_to_writing(Path(source))) is not None:
        raise typer.BadParameter(obstacle)


def tuning(
    job_id: JobName,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write a page with a plot and figures there.")
    ] = None,
    apply: Annotated[
        Path | None, typer.Option("--apply", metavar="FILE", help="Write the winner's settings into this run file.")
    ] = None,
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Show what a tuning found, write it as a page, or write its winner into a run file."""

    async def work() -> tuple[TuningReport, list[Path]]:
        async with operations.open_host(host, actor=ACTOR) as session:
            found = await operations_server.read_tuning(session, job_id)
        return found, [] if output is None else _write(found, output)

    report, written = execute(work(), as_json=as_json)
    if as_json:
        print_document("tuning_report", report)
    elif not written:
        print_text("\n".join(tuning_lines(report)))
    for path in written:
        narrate(f"wrote {path}")
    if apply is not None:
        _apply(report, apply)


def _apply(report: TuningReport, path: Path) -> None:
    if any(trial.recaptures for trial in report.trials if trial.number == report.winner):
        narrate(RECAPTURES)

    async def work() -> str:
        return settings_words(operations_server.apply_winner(report, path))

    narrate(f"wrote {execute(work(), as_json=False)} into {path}")


def _write(found: TuningReport, directory: Path) -> list[Path]:
    from console.report.writer import write_tuning  # noqa: PLC0415 - matplotlib loads only where plots are drawn

    return write_tuning(found, directory)
