"""Extractions by themselves: to plan, start and look at one, or one of its parts, and to check, merge and convert stores."""

from typing import NamedTuple

import msgspec

from console.operations import LOOK_TIMEOUT_S, Session, ask, start_job, was_started
from console.operations_server import running_server, unmet
from remote.protocol.ids import JobId, OpId
from remote.protocol.jobs import Job
from remote.protocol.progress import ExtractionPlanned
from remote.protocol.reports import ExtractionPlan, ExtractionReport
from remote.protocol.requests import PlanExtraction, ReadExtraction, ResolveExtraction
from remote.protocol.specs import (
    Capture,
    Recapture,
    ServerSpec,
    StoreExportSpec,
    StoreImportSpec,
    StoreMergeSpec,
    StoreVerificationSpec,
)

TOKENIZING_TIMEOUT_S = 600.0
"""Ten thousand long conversations take a minute or two."""


async def plan_extraction(
    session: Session, document: str, overrides: dict[str, str] | None = None
) -> ExtractionPlanned:
    """What a run's extraction would write, to the byte, and a sample of it; its conversations are tokenized on the host for that."""
    request = PlanExtraction(document=document, overrides=overrides or {})
    return await ask(session, request, ExtractionPlanned, timeout_s=TOKENIZING_TIMEOUT_S)


async def resolve_extraction(
    session: Session,
    document: str,
    overrides: dict[str, str] | None = None,
    *,
    server_job_id: JobId,
    part: tuple[int, int] | None = None,
    store: str | None = None,
) -> ExtractionPlan:
    """The extraction of a run, or one of several parts of it, through a capturing server that runs; its conversations are tokenized for that."""
    server = await _capturing_server(session, server_job_id)
    request = ResolveExtraction(
        document=document,
        overrides=overrides or {},
        url=server.url,
        model=server.model,
        capture=server.capture,
        part=part,
        store=store,
    )
    return await ask(session, request, ExtractionPlan, timeout_s=TOKENIZING_TIMEOUT_S)


async def start_extraction(session: Session, plan: ExtractionPlan, *, op_id: OpId | None = None) -> Job | None:
    """Start a resolved extraction as a job, None where its store is there; a plan with problems is refused."""
    if plan.problems and not await was_started(session, "extraction", op_id):
        raise unmet(f"the extraction of {plan.run} cannot start: {'; '.join(plan.problems)}")
    if plan.action == "skip":
        return None
    return await start_job(session, "extraction", plan.spec, op_id=op_id)


async def read_extraction(session: Session, name: str, *, limit: int) -> ExtractionReport:
    """A job's extraction, a run's, or what lies in a store, as it is now, with the first `limit` samples that are left out."""
    report = await ask(session, ReadExtraction(name=name, limit=limit), ExtractionReport, timeout_s=LOOK_TIMEOUT_S)
    while report.omitted and len(report.quarantine) < limit:
        there = report.quarantine
        request = ReadExtraction(name=name, skip=len(there), limit=limit - len(there))
        page = await ask(session, request, ExtractionReport, timeout_s=LOOK_TIMEOUT_S)
        if not page.quarantine:
            break
        report = msgspec.structs.replace(page, quarantine=[*there, *page.quarantine])
    return report


async def start_verification(
    session: Session,
    store: str,
    *,
    samples: int | None = None,
    recaptured: int = 0,
    server_job_id: JobId | None = None,
    seed: int = 0,
    op_id: OpId | None = None,
) -> Job:
    """Verify a store on the host as a job: all of it, or so many samples; `recaptured` are compared with what a server captures."""
    recapture = None
    if server_job_id is not None:
        server = await _capturing_server(session, server_job_id)
        recapture = Recapture(samples=recaptured, url=server.url, model=server.model, capture=server.capture)
    spec = StoreVerificationSpec(store=store, samples=samples, seed=seed, recapture=recapture)
    return await start_job(session, "verification", spec, op_id=op_id)


async def start_merge(session: Session, parts: list[str], store: str, *, op_id: OpId | None = None) -> Job:
    """Start making one store of all parts of an extraction, as a job."""
    return await start_job(session, "merge", StoreMergeSpec(parts=parts, store=store), op_id=op_id)


async def start_conversion(
    session: Session, spec: StoreExportSpec | StoreImportSpec, *, op_id: OpId | None = None
) -> Job:
    """Start the conversion of a store into another trainer's files, or the other way round, as a job."""
    return await start_job(session, "conversion", spec, op_id=op_id)


class _Capturing(NamedTuple):
    """What a server captures of which model, and where it answers."""

    url: str
    model: str
    capture: Capture


async def _capturing_server(session: Session, job_id: JobId) -> _Capturing:
    server = await running_server(session, job_id)
    if not isinstance(server.job.spec, ServerSpec) or server.job.spec.capture is None:
        raise unmet(f"the server of {job_id} captures nothing", next_command="roost server start RUN --capture")
    return _Capturing(server.ready.url, server.job.spec.model, server.job.spec.capture)
