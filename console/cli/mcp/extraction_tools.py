"""Tools for hidden states: plan, start and look at an extraction, and check, merge and convert stores."""

from typing import Annotated

from msgspec import Meta

from console import operations_extraction, operations_telemetry
from console.cli.mcp.arguments import Arguments, Key, RunFile
from console.cli.mcp.tool import Tell, Tool, looks, starts
from console.documents import JobOutcome, StartedExtraction, with_ages
from console.operations import Session
from remote.protocol.ids import JobId
from remote.protocol.run import TemplateVariables
from remote.protocol.specs import StoreExportSpec, StoreImportSpec, StoreLayout

Store = Annotated[str, Meta(min_length=1, description="On the host, absolute or below ROOT: runs/NAME/store.")]
CapturingServer = Annotated[JobId, Meta(description="A job of start_server with `capture`.")]


class ExtractionNamed(Arguments, frozen=True, kw_only=True):
    """An extraction or a store, and how many of the samples that it leaves out."""

    name: Annotated[str, Meta(description="A job's id, a run's, or a store's directory such as runs/NAME/store.")]
    limit: Annotated[int, Meta(ge=0, description="So many quarantined samples one by one.")] = 100


class StartingExtraction(RunFile, frozen=True, kw_only=True):
    """A run's extraction, or one of several parts of it, through a server that captures."""

    server: CapturingServer
    part: Annotated[
        tuple[Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=1)]] | None,
        Meta(description="[K, N]: only the K-th of N parts, for as many servers or hosts."),
    ] = None
    store: Annotated[str | None, Meta(description="Null: in the run's directory.")] = None
    key: Key


class Verifying(Arguments, frozen=True, kw_only=True):
    """A store, and how much of it."""

    store: Store
    samples: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="So many random samples; null: all of it.")
    ] = None
    server: Annotated[CapturingServer | None, Meta(description="Compare some samples with what it captures now.")] = (
        None
    )
    recaptured: Annotated[int, Meta(ge=1, description="With `server`: so many.")] = 4
    key: Key


class Merging(Arguments, frozen=True, kw_only=True):
    """The stores of all parts of an extraction, in any order, and the one that they make."""

    parts: Annotated[list[Store], Meta(min_length=2)]
    store: Store
    key: Key


class Exporting(Arguments, frozen=True, kw_only=True):
    """A store, and where another trainer's files go."""

    layout: StoreLayout
    store: Store
    directory: Annotated[str, Meta(description="On the host; nothing may lie there.")]
    key: Key


class Importing(Arguments, frozen=True, kw_only=True):
    """Another trainer's files, what they are of, and the store that is made of them."""

    layout: StoreLayout
    directory: Annotated[str, Meta(description="On the host.")]
    store: Store
    target_model: Annotated[str, Meta(description="The target that the states are of, on the host.")]
    layer_ids: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1, description="Hugging Face ids.")]
    chat_template_kwargs: TemplateVariables = {}
    key: Key


async def _plan_extraction(session: Session, asked: RunFile, _: Tell) -> object:
    return await operations_extraction.plan_extraction(session, asked.run_file, asked.overrides)


async def _read_extraction(session: Session, asked: ExtractionNamed, _: Tell) -> object:
    now = await operations_telemetry.read_host_clock(session)
    report = await operations_extraction.read_extraction(session, asked.name, limit=asked.limit)
    return with_ages(report, max(now, report.sampled_at or now))


async def _start_extraction(session: Session, asked: StartingExtraction, _: Tell) -> object:
    plan = await operations_extraction.resolve_extraction(
        session, asked.run_file, asked.overrides, server_job_id=asked.server, part=asked.part, store=asked.store
    )
    job = await operations_extraction.start_extraction(session, plan, op_id=asked.key)
    return StartedExtraction(plan=plan, job=job)


async def _verify_store(session: Session, asked: Verifying, _: Tell) -> object:
    job = await operations_extraction.start_verification(
        session,
        asked.store,
        samples=asked.samples,
        recaptured=asked.recaptured,
        server_job_id=asked.server,
        op_id=asked.key,
    )
    return JobOutcome(job=job)


async def _merge_stores(session: Session, asked: Merging, _: Tell) -> object:
    return JobOutcome(job=await operations_extraction.start_merge(session, asked.parts, asked.store, op_id=asked.key))


async def _export_store(session: Session, asked: Exporting, _: Tell) -> object:
    spec = StoreExportSpec(layout=asked.layout, store=asked.store, directory=asked.directory)
    return JobOutcome(job=await operations_extraction.start_conversion(session, spec, op_id=asked.key))


async def _import_store(session: Session, asked: Importing, _: Tell) -> object:
    spec = StoreImportSpec(
        layout=asked.layout,
        directory=asked.directory,
        store=asked.store,
        target_model=asked.target_model,
        layer_ids=asked.layer_ids,
        chat_template_kwargs=asked.chat_template_kwargs,
    )
    return JobOutcome(job=await operations_extraction.start_conversion(session, spec, op_id=asked.key))


EXTRACTION_TOOLS: tuple[Tool, ...] = (
    looks(
        "plan_extraction",
        "What a run's extraction would write, to the byte, and a sample.",
        RunFile,
        "extraction_plan",
        _plan_extraction,
    ),
    looks(
        "read_extraction",
        "How far an extraction is: progress and rate, what was planned and is left of the disk, and which samples are left out for which reason.",
        ExtractionNamed,
        "extraction_report",
        _read_extraction,
    ),
    starts(
        "start_extraction",
        "Extract a run's hidden states, or a part of them, by itself through a capturing server; `job` is null where the store is there.",
        StartingExtraction,
        "extraction",
        _start_extraction,
    ),
    starts(
        "verify_store",
        "Read a store of hidden states again, as a job; with `server` some samples are captured once more and compared.",
        Verifying,
        "verification",
        _verify_store,
    ),
    starts(
        "merge_stores",
        "Make one store of all parts of an extraction, as a job; the parts stay.",
        Merging,
        "merge",
        _merge_stores,
    ),
    starts(
        "export_store",
        "Write a store as SpecForge or speculators reads it, as a job; never over anything.",
        Exporting,
        "conversion",
        _export_store,
    ),
    starts(
        "import_store",
        "Make a store of another trainer's files, as a job; never over anything.",
        Importing,
        "conversion",
        _import_store,
    ),
)
"""Tools for hidden states."""
