"""`roost storage`."""

import shlex
from pathlib import PurePosixPath
from typing import Annotated

import typer

from console import operations, operations_storage
from console.cli.agreement import agreement
from console.cli.jobs import carry_on, exit_code_of
from console.cli.options import ACTOR, Host, Json, NoWait, Timeout
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.storage_text import plan_lines, report_lines, trash_lines
from console.cli.text import state_words
from console.cli.verbs import Verbs
from console.documents import Reclaimed
from console.errors import ConsoleError, UsageError
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.jobs import Job
from remote.protocol.storage import ReclaimPlan, StorageReport, TrashEntry

app = Verbs(
    help="What lies on a host's disks, and freeing them: reclaim (into the trash), restore, purge (for good).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Everything = Annotated[bool, typer.Option("--all", help="Every entry of the trash.")]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="ENTRY...", help="Entries, as `roost storage usage` names them.")
]


@app.command(short_help="List what lies where, and what can go.")
def usage(host: Host = operations.EMBEDDED, as_json: Json = False) -> None:  # noqa: FBT002
    """List what lies where, the largest first, what can go and what cannot and why, and the trash."""

    async def work() -> StorageReport:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_storage.read_storage(session)

    report = execute(work(), as_json=as_json)
    if as_json:
        print_document("storage", report)
    else:
        print_text("\n".join(report_lines(report)))


@app.command(short_help="Move directories into the trash, after a plan.")
def reclaim(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Directories or files on the host; relative: below ROOT.")
    ],
    host: Host = operations.EMBEDDED,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and its token; change nothing.")] = False,  # noqa: FBT002
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The last part of the path, to do it unasked.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--plan", metavar="TOKEN", help="Do exactly what a plan said, if nothing changed since."),
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Move directories of runs and finished jobs into the trash; what is small and precious stays unless it is named."""

    async def work() -> tuple[ReclaimPlan, list[TrashEntry]]:
        async with operations.open_host(host, actor=ACTOR) as session:
            plan = await operations_storage.plan_reclaim(session, paths)
            if plan.problems:
                raise _refusal(plan, await operations_storage.read_storage(session), host)
            if not as_json:
                narrate("\n".join(plan_lines(plan, host)))
            if dry_run:
                return plan, []
            with agreement(
                f"Move it to the trash of {host}?",
                said=token or _confirmed(paths, confirm, plan.token),
                expected=token or plan.token,
                message=f"reclaiming {', '.join(plan.paths)} on {host} needs a confirmation",
                again=f"roost storage reclaim {' '.join(paths)} --host {host} --plan {plan.token}",
            ):
                return plan, await operations_storage.reclaim(session, paths, token or plan.token)

    plan, trash = execute(work(), as_json=as_json)
    if as_json:
        print_document("reclaim", Reclaimed(plan=plan, trash=trash, done=not dry_run))
    elif not dry_run:
        print_text("\n".join(trash_lines(trash)))
        narrate(f"The space is free once the trash is purged: roost storage purge --all --host {host}")


def _refusal(plan: ReclaimPlan, report: StorageReport, host: str) -> ConsoleError:
    """Why nothing goes, with what would make room in its place."""
    can_go = next((entry for entry in report.entries if entry.kept_because is None), None)
    if report.trash:
        instead, command = "the trash makes room once it is purged", ["purge", "--all", "--dry-run"]
    elif can_go is not None:
        instead, command = f"the largest that can go is {can_go.path}", ["reclaim", can_go.path, "--dry-run"]
    else:
        instead, command = "nothing of Roost's can go; look at the host what else is on the disk", []
    return ConsoleError(
        ErrorInfo(
            code=ErrorCode.PRECONDITION,
            message="; ".join(plan.problems),
            hint=f"nothing was moved; {instead}",
            next_command=shlex.join(["roost", "storage", *command, "--host", host]) if command else None,
        )
    )


def _confirmed(paths: list[str], confirm: str | None, token: str) -> str | None:
    """The plan's token where the name of all that would go was said; None where nothing was."""
    names = {PurePosixPath(path).name for path in paths}
    if confirm is not None and {confirm} != names:
        raise UsageError(f"--confirm {confirm} is not the name of what would go: {', '.join(sorted(names))}")
    return None if confirm is None else token


@app.command(short_help="Put an entry of the trash back.")
def restore(
    name: Annotated[str, typer.Argument(metavar="ENTRY", help="An entry of the trash.")],
    host: Host = operations.EMBEDDED,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Put an entry of the trash back where it was; never over anything."""

    async def work() -> list[TrashEntry]:
        async with operations.open_host(host, actor=ACTOR) as session:
            return await operations_storage.restore_from_trash(session, name)

    left = execute(work(), as_json=as_json)
    if as_json:
        print_document("trash", left)
    else:
        print_text(f"{name} is back where it was")


@app.command(short_help="Delete entries of the trash for good, as a job.")
def purge(
    names: Names = None,
    everything: Everything = False,  # noqa: FBT002
    host: Host = operations.EMBEDDED,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="HOST", help="Repeat the host's name to do it unasked.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")] = False,  # noqa: FBT002
    timeout: Timeout = None,
    no_wait: NoWait = False,  # noqa: FBT002
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Delete entries of the trash for good, as a job with progress."""

    async def work() -> Job | list[TrashEntry] | None:
        async with operations.open_host(host, actor=ACTOR) as session:
            trash = (await operations_storage.read_storage(session)).trash
            chosen = _choose(trash, names or [], everything=everything)
            if dry_run:
                return chosen
            if not chosen:
                return None
            narrate("\n".join(trash_lines(chosen)))
            with agreement(
                f"Delete this on {host} for good?",
                said=confirm,
                expected=host,
                message=f"purging {len(chosen)} entries of the trash of {host} needs a confirmation: they are gone then",
                again=f"roost storage purge {' '.join(e.name for e in chosen)} --host {host} --confirm {host}",
            ):
                job = await operations_storage.start_purge(session, chosen)
            return await carry_on(session, job, no_wait=no_wait, timeout_s=timeout)

    job = execute(work(), as_json=as_json)
    if isinstance(job, list):
        _print_trash(job, as_json=as_json)
        return
    if as_json:
        print_document("job", job)
    else:
        print_text("the trash is empty" if job is None else f"{job.job_id}: {state_words(job.state)}")
    raise typer.Exit(0 if job is None else exit_code_of(job))


def _print_trash(entries: list[TrashEntry], *, as_json: bool) -> None:
    if as_json:
        print_document("trash", entries)
    else:
        print_text("\n".join(trash_lines(entries)) if entries else "the trash is empty")


def _choose(trash: list[TrashEntry], names: list[str], *, everything: bool) -> list[TrashEntry]:
    if everything == bool(names):
        raise UsageError("name entries of the trash, or say --all")
    unknown = set(names) - {entry.name for entry in trash}
    if unknown:
        raise UsageError(f"not in the trash: {', '.join(sorted(unknown))}", hint="roost storage usage lists it")
    return [entry for entry in trash if everything or entry.name in names]
