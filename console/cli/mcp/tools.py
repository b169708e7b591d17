"""The tools: what each needs, takes, gives and does, through the same operations as the verbs and the screen."""

from console import (
    operations,
    operations_approvals,
    operations_notifications,
    operations_secrets,
    operations_storage,
    operations_telemetry,
)
from console.cli.mcp import arguments as args
from console.cli.mcp.extraction_tools import EXTRACTION_TOOLS
from console.cli.mcp.server_tools import SERVER_TOOLS
from console.cli.mcp.tool import Tell, Tool, confirm, looks
from console.cli.mcp.training_tools import TRAINING_TOOLS
from console.cli.mcp.transfer_tools import TRANSFER_TOOLS
from console.cli.mcp.vocabulary_tools import VOCABULARY_TOOLS
from console.config.hosts import price_of
from console.documents import Reclaimed, StartedRun, log_text, priced, with_ages
from console.errors import ConsoleError, UsageError
from console.operations import Session
from console.operations_waiting import wait_for_job
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.jobs import Job


async def _list_hosts(_: None, __: args.NoArguments, ___: Tell) -> list[str]:
    return [operations.EMBEDDED, *operations.list_hosts()]


async def _list_jobs(session: Session, _: args.Arguments, __: Tell) -> list[Job]:
    return await operations.list_jobs(session)


async def _get_job(session: Session, asked: args.OfJob, _: Tell) -> Job:
    return await operations.get_job(session, asked.job_id)


async def _wait_for_job(session: Session, asked: args.Waiting, tell: Tell) -> Job:
    return await wait_for_job(session, asked.job_id, until=asked.until, timeout_s=asked.timeout_s, tell=tell)


async def _read_log(session: Session, asked: args.LogWanted, _: Tell) -> object:
    return log_text(await operations.read_log(session, asked.job_id, offset=asked.since, limit=asked.limit))


async def _read_telemetry(session: Session, _: args.Arguments, __: Tell) -> object:
    now = await operations_telemetry.read_host_clock(session)
    sample = await operations_telemetry.read_telemetry(session)
    return with_ages(sample, max(now, sample.sampled_at))


async def _read_topology(session: Session, _: args.Arguments, __: Tell) -> object:
    return await operations_telemetry.read_topology(session)


async def _plan_run(session: Session, asked: args.RunFile, _: Tell) -> object:
    return priced(await operations.plan_run(session, asked.run_file, asked.overrides), price_of(asked.host))


async def _apply_plan(session: Session, asked: args.Applying, _: Tell) -> object:
    return StartedRun(job=await operations.apply_plan(session, asked.plan), verdict=None)


async def _read_verdict(session: Session, asked: args.OfJob, _: Tell) -> object:
    return await operations.read_verdict(session, asked.job_id)


async def _stop_job(session: Session, asked: args.Stopping, _: Tell) -> Job:
    confirm(asked.confirm, asked.job_id, f"{asked.job_id} and the jobs that it started would be stopped")
    return await operations.stop_job(
        session, asked.job_id, reason=asked.reason, expected_revision=asked.expected_revision
    )


async def _read_storage(session: Session, _: args.Arguments, __: Tell) -> object:
    return await operations_storage.read_storage(session)


async def _plan_reclaim(session: Session, asked: args.Paths, _: Tell) -> object:
    return Reclaimed(plan=await operations_storage.plan_reclaim(session, asked.paths), trash=[], done=False)


async def _reclaim(session: Session, asked: args.Reclaiming, _: Tell) -> object:
    plan = await operations_storage.plan_reclaim(session, asked.paths)
    if plan.problems:
        raise ConsoleError(
            ErrorInfo(code=ErrorCode.PRECONDITION, message="; ".join(plan.problems), hint="nothing was moved")
        )
    trash = await operations_storage.reclaim(session, asked.paths, asked.token)
    return Reclaimed(plan=plan, trash=trash, done=True)


async def _restore(session: Session, asked: args.TrashEntryNamed, _: Tell) -> object:
    return await operations_storage.restore_from_trash(session, asked.entry)


async def _purge(session: Session, asked: args.Purging, _: Tell) -> Job:
    trash = (await operations_storage.read_storage(session)).trash
    chosen = [entry for entry in trash if entry.name in asked.entries]
    unknown = set(asked.entries) - {entry.name for entry in chosen}
    if unknown:
        raise UsageError(f"not in the trash: {', '.join(sorted(unknown))}", hint="read_storage lists it")
    confirm(asked.confirm, asked.host, f"{len(chosen)} entries of the trash would be deleted for good")
    return await operations_storage.start_purge(session, chosen)


async def _list_approvals(session: Session, _: args.Arguments, __: Tell) -> object:
    return await operations_approvals.list_approvals(session)


async def _wait_for_approval(session: Session, asked: args.OfApproval, _: Tell) -> object:
    return await operations_approvals.wait_for_approval(session, asked.approval_id, timeout_s=asked.timeout_s)


async def _read_journal(session: Session, asked: args.JournalWanted, _: Tell) -> object:
    return await operations.read_journal(session, since=asked.since, limit=asked.limit)


async def _list_notifications(session: Session, _: args.Arguments, __: Tell) -> object:
    return await operations_notifications.list_notifications(session)


async def _list_secrets(session: Session, _: args.Arguments, __: Tell) -> object:
    return await operations_secrets.list_secrets(session)


TOOLS: tuple[Tool, ...] = (
    looks("list_hosts", "The hosts that can be named.", args.NoArguments, "hosts", _list_hosts, is_hostless=True),
    looks("list_jobs", "All jobs of a host, newest first, with their states.", args.Arguments, "jobs", _list_jobs),
    looks("get_job", "One job: state, progress, results.", args.OfJob, "job", _get_job),
    looks(
        "wait_for_job",
        "Wait until a job is over, or in a state; tells progress. A timeout is an error that leaves the job at work.",
        args.Waiting,
        "job",
        _wait_for_job,
        is_long=True,
    ),
    looks("read_log", "A page of a job's log by byte offset.", args.LogWanted, "log", _read_log),
    looks(
        "read_telemetry",
        "GPUs, processors, memory, disks, engines, and what is wrong.",
        args.Arguments,
        "telemetry",
        _read_telemetry,
    ),
    looks(
        "plan_run",
        "Every stage of a run with its command and bytes, problems, risks, and the fingerprint that apply_plan takes. Starts nothing.",
        args.RunFile,
        "plan",
        _plan_run,
    ),
    Tool(
        name="apply_plan",
        description="Start the run of a plan exactly as plan_run showed it; a conflict says what changed since. The same plan again is the same job.",
        needs="operate",
        takes=args.Applying,
        document="run",
        work=_apply_plan,
    ),
    looks(
        "read_verdict",
        "The verdict of a run: promote, reject or inconclusive, with figures and reasons.",
        args.OfJob,
        "verdict",
        _read_verdict,
    ),
    Tool(
        name="stop_job",
        description="Stop a job and the jobs that it started. Without confirm a person is asked.",
        needs="operate",
        takes=args.Stopping,
        document="job",
        work=_stop_job,
        is_destructive=True,
    ),
    looks(
        "read_storage",
        "What lies on the disks, what of it can go and what cannot and why, and the trash.",
        args.Arguments,
        "storage",
        _read_storage,
    ),
    looks(
        "plan_reclaim",
        "What moving directories into the trash would free, and the token for reclaim. Changes nothing.",
        args.Paths,
        "reclaim",
        _plan_reclaim,
    ),
    Tool(
        name="reclaim",
        description="Move into the trash what a plan_reclaim showed, if nothing changed since. It can be restored; the space is free after purge.",
        needs="operate",
        takes=args.Reclaiming,
        document="reclaim",
        work=_reclaim,
        is_destructive=True,
    ),
    Tool(
        name="restore",
        description="Put an entry of the trash back where it was; never over anything.",
        needs="operate",
        takes=args.TrashEntryNamed,
        document="trash",
        work=_restore,
        is_idempotent=False,
    ),
    Tool(
        name="purge",
        description="Delete entries of the trash for good, as a job. Without confirm a person is asked.",
        needs="full",
        takes=args.Purging,
        document="job",
        work=_purge,
        is_destructive=True,
        is_idempotent=False,
    ),
    looks(
        "list_approvals",
        "What waits in the host's inbox for a person, and what was decided.",
        args.Arguments,
        "approvals",
        _list_approvals,
    ),
    looks(
        "wait_for_approval",
        "Wait until a person has approved or refused a request of the inbox: state, done, job_id, error. Nobody approves his own here.",
        args.OfApproval,
        "approval",
        _wait_for_approval,
    ),
    looks(
        "read_journal",
        "Who asked the host to change what, when, and what came of it; newest first.",
        args.JournalWanted,
        "journal",
        _read_journal,
    ),
    looks(
        "list_notifications",
        "What the host told people who were not looking: verdicts, failures, short disks, faulty devices, and whether it arrived.",
        args.Arguments,
        "notifications",
        _list_notifications,
    ),
    looks("list_secrets", "The names of the host's tokens, never a value.", args.Arguments, "secrets", _list_secrets),
    looks(
        "read_topology",
        "How the devices are connected, and which of their events are seen there.",
        args.Arguments,
        "topology",
        _read_topology,
    ),
    *EXTRACTION_TOOLS,
    *VOCABULARY_TOOLS,
    *TRAINING_TOOLS,
    *SERVER_TOOLS,
    *TRANSFER_TOOLS,
)
"""Every tool. A token's value never goes through here: `roost secrets set` reads it from a person."""
