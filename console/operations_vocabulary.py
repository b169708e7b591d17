"""Draft vocabularies: to validate, inspect, build, measure, convert and copy mappings, on a host and between hosts."""

import hashlib
import tempfile
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from console.errors import ConsoleError, UsageError
from console.operations import PLAN_TIMEOUT_S, Session, ask, follow_job, start_job, was_started
from console.operations_bulk import pull, push
from console.state.mappings import CopyPlan, copy_consequence, why_not_copied
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.ids import JobId, OpId
from remote.protocol.jobs import Job
from remote.protocol.mappings import (
    INCOMING,
    CoverageReport,
    MappingBuildSpec,
    MappingConvertSpec,
    MappingCoverageSpec,
)
from remote.protocol.reports import MappingInspection, MappingReport
from remote.protocol.requests import InspectMapping, ReadCoverage, ValidateMapping
from remote.protocol.specs import MappingCopySpec

_COPY = "mapping-copy"

_OUTGOING = "outgoing"
"""Where below ROOT the sealed copies lie of foreign mappings that go to other hosts."""


async def validate_mapping(
    session: Session,
    path: str,
    *,
    target_model: str | None = None,
    drafter: str | None = None,
    store: str | None = None,
) -> MappingReport:
    """The state of a draft-vocabulary mapping on the host, with every finding, also between it and what else is named."""
    request = ValidateMapping(path=path, target_model=target_model, drafter=drafter, store=store)
    return await ask(session, request, MappingReport, timeout_s=PLAN_TIMEOUT_S)


async def inspect_mapping(session: Session, path: str, *, target_model: str | None = None) -> MappingInspection:
    """Everything that the host knows of a mapping: findings, provenance, who else has it, backups."""
    request = InspectMapping(path=path, target_model=target_model)
    return await ask(session, request, MappingInspection, timeout_s=PLAN_TIMEOUT_S)


async def plan_mapping_copy(session: Session, source: str, receiver: Session, destination: str) -> CopyPlan:
    """What a copy of a mapping of the session's host to a place of the receiver's would do; nothing is written."""
    going = await validate_mapping(session, source)
    there = await find_mapping(receiver, destination)
    consequence = copy_consequence(going, there)
    obstacle = why_not_copied(going)
    return CopyPlan(
        source=going,
        host=receiver.host.name,
        destination=destination,
        there=there,
        consequence=consequence.words,
        replaces=consequence.replaces,
        is_needed=consequence.is_needed,
        problems=[] if obstacle is None else [obstacle],
    )


def refuse_copy(plan: CopyPlan, *, replace: bool) -> None:
    """Raise what stands against a copy: a precondition for its source, a conflict where it would replace another mapping unasked."""
    if plan.problems:
        raise _unmet(f"{plan.source.path} is not copied", " ".join(plan.problems))
    if plan.replaces and not replace:
        raise ConsoleError(
            ErrorInfo(
                code=ErrorCode.CONFLICT,
                message=f"another mapping lies at {plan.destination} on {plan.host}; nothing was written",
                hint="copy to another name; to put that one aside, which keeps it beside the new one, is a person's decision: replace",
                next_command=f"roost vocabulary inspect {plan.destination} --host {plan.host}",
            )
        )


async def find_mapping(session: Session, path: str) -> MappingReport | None:
    """What lies at a path of the host; None for no mapping."""
    try:
        return await validate_mapping(session, path)
    except ConsoleError as error:
        if error.info.code is not ErrorCode.NOT_FOUND:
            raise
        return None


async def start_mapping_copy(
    session: Session,
    source: str,
    destination: str,
    *,
    replace: bool = False,
    origin: str | None = None,
    op_id: OpId | None = None,
) -> Job:
    """Start a checked copy of a mapping as a job; a different destination is only replaced when told to, and kept.

    Raises at once what the job would only find when it is at work: not_found for no mapping at `source`, a precondition for one
    that must not be copied, a conflict for another one at `destination`.
    """
    if not await was_started(session, _COPY, op_id):
        refuse_copy(await plan_mapping_copy(session, source, session, destination), replace=replace)
    spec = MappingCopySpec(source=source, destination=destination, replace=replace, origin=origin)
    return await start_job(session, _COPY, spec, op_id=op_id)


async def start_mapping_build(session: Session, spec: MappingBuildSpec, *, op_id: OpId | None = None) -> Job:
    """Start counting and building as a job."""
    return await start_job(session, "mapping-build", spec, op_id=op_id)


async def start_mapping_convert(session: Session, spec: MappingConvertSpec, *, op_id: OpId | None = None) -> Job:
    """Start writing a mapping in another layout as a job."""
    return await start_job(session, "mapping-convert", spec, op_id=op_id)


async def start_mapping_coverage(session: Session, spec: MappingCoverageSpec, *, op_id: OpId | None = None) -> Job:
    """Start measuring how much of given answers a mapping covers, as a job."""
    return await start_job(session, "mapping-coverage", spec, op_id=op_id)


async def read_coverage(session: Session, job_id: JobId) -> CoverageReport:
    """What a job said of a mapping's coverage."""
    return await ask(session, ReadCoverage(job_id=job_id), CoverageReport)


async def bring_mapping(
    session: Session, source: str, receiver: Session, *, report: Callable[[str], None]
) -> tuple[str, str]:
    """Bring a mapping of the session's host to the receiver's, hashed on the way; one that Roost did not make is sealed first.

    Returns where it lies there, to be copied to its place, and where it came from, for its provenance. Raises a precondition
    for one that must not be used.
    """
    to_host = receiver.host.name
    if session.host.name == to_host:
        raise UsageError(f"{source} is on {to_host} already", hint="leave --to out")
    found = await validate_mapping(session, source)
    if not found.valid:
        codes = ", ".join(finding.code for finding in found.findings if finding.severity == "error")
        raise _unmet(
            f"the mapping {found.path} must not be used: {codes}", "`roost vocabulary validate` says what to do"
        )
    if found.layout != "roost":
        raise _unmet(
            f"the mapping {found.path} lies in the layout of {found.layout}",
            "`roost vocabulary convert` makes one that can be copied; `roost pull` and `push` move it as it is",
        )
    sealed = found.path if found.provenance == "roost" else await _seal(session, found)
    landing = f"{INCOMING}/{_short_name(found)}"

    def retry(reason: str, wait_s: float) -> None:
        report(f"connection lost ({reason}); going on in {wait_s:.0f} s")

    with tempfile.TemporaryDirectory(prefix="roost-mapping-") as here:
        local = Path(here) / "mapping"
        await pull(session.host.name, sealed, local, on_advance=lambda _: None, on_retry=retry)
        report(f"{found.path} of {session.host.name} goes to {to_host}")
        await push(to_host, local, landing, actor=receiver.actor, on_advance=lambda _: None, on_retry=retry)
    return landing, f"{session.host.name}:{found.path}"


async def _seal(session: Session, found: MappingReport) -> str:
    """Where a copy of a foreign mapping lies that has a manifest, as transfers need it."""
    place = f"{_OUTGOING}/{_short_name(found)}"
    job = await start_mapping_copy(session, found.path, place)
    async with aclosing(follow_job(session, job.job_id)) as events:
        async for event in events:
            job = event if isinstance(event, Job) else job
    if job.result is None:
        raise _unmet(f"{found.path} could not be sealed", f"`roost logs {job.job_id}` says why")
    return place


def _short_name(found: MappingReport) -> str:
    """The same for the same files, so that what broke off goes on."""
    digest = hashlib.sha256("".join(f"{file.name}{file.sha256}" for file in found.files).encode())
    return f"mapping-{digest.hexdigest()[:16]}"


def _unmet(message: str, hint: str) -> ConsoleError:
    return ConsoleError(ErrorInfo(code=ErrorCode.PRECONDITION, message=message, hint=hint))
