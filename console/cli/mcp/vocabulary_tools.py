"""Tools for draft-vocabulary mappings: check, copy, build, convert, measure."""

from typing import Annotated

from msgspec import Meta, Struct

from console import operations_vocabulary
from console.cli.mcp.arguments import Arguments, Key, OfJob
from console.cli.mcp.tool import Tell, Tool, confirm, looks, starts
from console.documents import MadeMapping, MeasuredCoverage
from console.errors import UsageError
from console.operations import Session
from remote.protocol.mappings import (
    MappingBuildSpec,
    MappingConvertSpec,
    MappingCoverageSpec,
    TokenSource,
    WrittenLayout,
)
from remote.protocol.run import TemplateVariables


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where tokens are counted."""

    path: str
    weight: Annotated[float, Meta(gt=0)] = 1.0


Sources = Annotated[
    list[Source],
    Meta(
        min_length=1,
        description="Stores, JSONL files of conversations, or kept counts; each token counts `weight` times.",
    ),
]
MaxLength = Annotated[
    Annotated[int, Meta(ge=1)] | None, Meta(description="Cut conversations after this many tokens, as a run does.")
]
TemplateKwargs = Annotated[
    TemplateVariables, Meta(description="Variables of the chat template, as a run's target.chat_template_kwargs.")
]


class OfMapping(Arguments, frozen=True, kw_only=True):
    """A mapping and its target."""

    path: Annotated[str, Meta(description="On the host, absolute or below ROOT, such as runs/NAME/mapping.")]
    target: Annotated[str | None, Meta(description="The target's directory on the host.")] = None


class CopyingMapping(Arguments, frozen=True, kw_only=True):
    """From where to where on one host."""

    source: str
    destination: str
    replace: Annotated[
        bool,
        Meta(
            description="Put a different mapping at `destination` aside, which stays there as a backup; a person's decision: needs `confirm`."
        ),
    ] = False
    confirm: Annotated[str | None, Meta(description="With `replace`: the destination again.")] = None
    key: Key


class PlanningCopy(Arguments, frozen=True, kw_only=True):
    """From where to where on one host."""

    source: str
    destination: str


class BuildingMapping(Arguments, frozen=True, kw_only=True):
    """What to count, and the mapping to build from it."""

    sources: Sources
    draft_vocab_size: Annotated[int, Meta(ge=1, description="How many tokens a drafter may propose.")]
    destination: str
    counts: Annotated[str | None, Meta(description="Where the counts are kept; null: DESTINATION-counts.")] = None
    target_model: Annotated[str | None, Meta(description="Null: that of the first store or counts.")] = None
    forced: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(description="Take these tokens in any case.")] = []
    force_special: Annotated[bool, Meta(description="Take the target's special tokens in any case.")] = False
    max_length: MaxLength = None
    chat_template_kwargs: TemplateKwargs = {}
    key: Key


class ConvertingMapping(Arguments, frozen=True, kw_only=True):
    """A mapping, and in whose layout to write it where."""

    source: str
    destination: str
    layout: WrittenLayout = "roost"
    target_model: str | None = None
    key: Key


class MeasuringCoverage(Arguments, frozen=True, kw_only=True):
    """A mapping, or the size of the best one, and the answers to measure it on."""

    sources: Sources
    mapping: Annotated[str | None, Meta(description="Null: the best of `draft_vocab_size`.")] = None
    draft_vocab_size: Annotated[int, Meta(ge=1)] | None = None
    target_model: str | None = None
    curve: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(description="Sizes on the curve.")] = []
    missing: Annotated[int, Meta(ge=0, le=1000, description="How many missing tokens to list.")] = 20
    minimum_coverage: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_length: MaxLength = None
    chat_template_kwargs: TemplateKwargs = {}
    key: Key


def _sources(named: list[Source]) -> list[TokenSource]:
    return [TokenSource(path=each.path, weight=each.weight) for each in named]


async def _validate_mapping(session: Session, asked: OfMapping, _: Tell) -> object:
    return await operations_vocabulary.validate_mapping(session, asked.path, target_model=asked.target)


async def _inspect_mapping(session: Session, asked: OfMapping, _: Tell) -> object:
    return await operations_vocabulary.inspect_mapping(session, asked.path, target_model=asked.target)


async def _copy_mapping(session: Session, asked: CopyingMapping, _: Tell) -> object:
    plan = await operations_vocabulary.plan_mapping_copy(session, asked.source, session, asked.destination)
    if asked.replace and plan.replaces:
        confirm(asked.confirm, asked.destination, f"a different mapping at {asked.destination} would be put aside")
    job = await operations_vocabulary.start_mapping_copy(
        session, asked.source, asked.destination, replace=asked.replace, op_id=asked.key
    )
    return MadeMapping(job=job, mapping=None)


async def _plan_mapping_copy(session: Session, asked: PlanningCopy, _: Tell) -> object:
    return await operations_vocabulary.plan_mapping_copy(session, asked.source, session, asked.destination)


async def _build_mapping(session: Session, asked: BuildingMapping, _: Tell) -> object:
    spec = MappingBuildSpec(
        sources=_sources(asked.sources),
        draft_vocab_size=asked.draft_vocab_size,
        destination=asked.destination,
        counts=asked.counts or f"{asked.destination.rstrip('/')}-counts",
        target_model=asked.target_model,
        forced=asked.forced,
        force_special=asked.force_special,
        max_length=asked.max_length,
        chat_template_kwargs=asked.chat_template_kwargs,
    )
    job = await operations_vocabulary.start_mapping_build(session, spec, op_id=asked.key)
    return MadeMapping(job=job, mapping=None)


async def _convert_mapping(session: Session, asked: ConvertingMapping, _: Tell) -> object:
    spec = MappingConvertSpec(
        source=asked.source, destination=asked.destination, layout=asked.layout, target_model=asked.target_model
    )
    job = await operations_vocabulary.start_mapping_convert(session, spec, op_id=asked.key)
    return MadeMapping(job=job, mapping=None)


async def _measure_coverage(session: Session, asked: MeasuringCoverage, _: Tell) -> object:
    if asked.mapping is None and asked.draft_vocab_size is None:
        raise UsageError("name a mapping, or the size of one as draft_vocab_size")
    spec = MappingCoverageSpec(
        sources=_sources(asked.sources),
        target_model=asked.target_model,
        mapping=asked.mapping,
        draft_vocab_size=asked.draft_vocab_size,
        curve=asked.curve,
        missing=asked.missing,
        max_length=asked.max_length,
        chat_template_kwargs=asked.chat_template_kwargs,
        minimum_coverage=asked.minimum_coverage,
    )
    job = await operations_vocabulary.start_mapping_coverage(session, spec, op_id=asked.key)
    return MeasuredCoverage(job=job, report=None)


async def _read_coverage(session: Session, asked: OfJob, _: Tell) -> object:
    return await operations_vocabulary.read_coverage(session, asked.job_id)


VOCABULARY_TOOLS: tuple[Tool, ...] = (
    looks(
        "validate_mapping",
        "Check a draft-vocabulary mapping in any trainer's layout; every finding has its fix.",
        OfMapping,
        "mapping",
        _validate_mapping,
    ),
    looks(
        "inspect_mapping",
        "All that is known of a mapping: provenance, who else has it, backups.",
        OfMapping,
        "inspection",
        _inspect_mapping,
    ),
    Tool(
        name="copy_mapping",
        description="Copy a mapping on a host as a job, hashed and validated; never over a different one without replace, and confirm or a person's yes.",
        needs="operate",
        takes=CopyingMapping,
        document="copy",
        work=_copy_mapping,
        is_destructive=True,
    ),
    looks(
        "plan_mapping_copy",
        "What a copy_mapping would do: the source, what lies at the destination, what stands against it. Changes nothing.",
        PlanningCopy,
        "copy_plan",
        _plan_mapping_copy,
    ),
    starts(
        "build_mapping",
        "Build a mapping from the answers in stores, conversations or kept counts, as a job; never over anything.",
        BuildingMapping,
        "build",
        _build_mapping,
    ),
    starts(
        "convert_mapping",
        "Write a mapping in another trainer's layout, as a job; never over anything.",
        ConvertingMapping,
        "convert",
        _convert_mapping,
    ),
    starts(
        "measure_coverage",
        "Measure how much of given answers a mapping covers, as a job; read_coverage has the figures when it is over.",
        MeasuringCoverage,
        "coverage",
        _measure_coverage,
    ),
    looks("read_coverage", "What a measure_coverage found.", OfJob, "coverage_report", _read_coverage),
)
"""Tools for mappings."""
