"""`roost allocation`: start, show, end."""

import time
from typing import Annotated

import typer

from console import operations_allocation
from console.cli.manners import agreed
from console.cli.options import ACTOR, Json, Timeout
from console.cli.output import execute, narrate, print_document, print_text
from console.cli.verbs import Verbs
from console.errors import ConfirmationNeeded
from console.operations_allocation import AllocationPlan
from console.state.allocation import Allocation, Ending, Pending, Running
from console.state.units import format_duration

app = Verbs(help="Hosts that are allocations of Slurm: start, show, end.", no_args_is_help=True, rich_markup_mode=None)

HostName = Annotated[str, typer.Argument(metavar="HOST", help="A host of roost.toml with [hosts.HOST.slurm].")]


@app.command(short_help="Ask Slurm for the allocation that a host lives in.")
def start(
    host: HostName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")] = False,  # noqa: FBT002
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has its node.")] = False,  # noqa: FBT002
    timeout: Timeout = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Submit the batch script of a host's allocation through its login host; one that is there already is not asked for again."""

    async def work() -> tuple[AllocationPlan, Allocation | None]:
        plan = await operations_allocation.plan_allocation(host, actor=ACTOR)
        if dry_run:
            return plan, plan.there
        found = await operations_allocation.start_allocation(plan)
        if wait:
            narrate(f"Slurm job {found.slurm_job}: {allocation_words(found)}")
            found = await operations_allocation.wait_for_allocation(host, timeout_s=timeout)
        return plan, found

    plan, found = execute(work(), as_json=as_json)
    if as_json:
        print_document("allocation_plan" if dry_run else "allocation", plan if dry_run else found)
    elif dry_run:
        print_text(_short(plan.script))
    elif found is not None:
        print_text(f"Slurm job {found.slurm_job}: {allocation_words(found)}")


@app.command(short_help="Say where a host's allocation is.")
def show(host: HostName, as_json: Json = False) -> None:  # noqa: FBT002
    """Ask Slurm's queue where the allocation of a host is, what it waits for and when its time is over."""
    found = execute(operations_allocation.read_allocation(host), as_json=as_json)
    if as_json:
        print_document("allocation", found)
    elif found is None:
        print_text(f"{host} has no allocation; `roost allocation start {host}` asks for one")
    else:
        print_text(f"Slurm job {found.slurm_job}: {allocation_words(found)}")


@app.command(short_help="Give a host's allocation back.")
def end(
    host: HostName,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="HOST", help="Repeat the host's name to do it unasked.")
    ] = None,
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Stop all jobs of a host, as the end of its time would, and give its node back; names them first."""

    async def work() -> Allocation | None:
        found = await operations_allocation.read_allocation(host)
        if found is None or isinstance(found.state, Ending):
            return found
        jobs = await operations_allocation.running_jobs(host, actor=ACTOR) if isinstance(found.state, Running) else []
        stops = f", which stops {', '.join(jobs)}" if jobs else ""
        narrate(f"ends Slurm job {found.slurm_job} of {host} ({allocation_words(found)}){stops}")
        if confirm != host and not agreed(f"End the allocation of {host}?"):
            raise ConfirmationNeeded(
                f"ending Slurm job {found.slurm_job} of {host}{stops} needs a confirmation",
                next_command=f"roost allocation end {host} --confirm {host}",
            )
        return await operations_allocation.end_allocation(host)

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("allocation", found)
    elif found is None:
        print_text(f"{host} has no allocation")
    else:
        print_text(f"Slurm job {found.slurm_job} of {host} is told to end")


def allocation_words(found: Allocation) -> str:
    """Where an allocation is, in words."""
    match found.state:
        case Pending(reason=reason, starts_at=starts_at):
            when = "" if starts_at is None else f", may start in {format_duration(max(0.0, starts_at - time.time()))}"
            return f"waits in the queue{reason and f' ({reason})'}{when}"
        case Running(node=node, ends_at=ends_at):
            when = (
                "without a limit" if ends_at is None else f"for {format_duration(max(0.0, ends_at - time.time()))} more"
            )
            return f"runs on {node} {when}"
        case Ending(word=word):
            return f"is ending ({word.lower()})"


def _short(script: str) -> str:
    """The script without the program that it carries, which no person reads."""
    *directives, _ = script.rstrip("\n").split("\n")
    return "\n".join([*directives, "# the keeper: starts what links ask for, ends it before the time is over"])
