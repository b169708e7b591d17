"""Every JSON document that leaves Roost, by its name, with its JSON Schema; for the command line and MCP alike.

A document is `{"schema_version": 1, "<name>": payload}`. The schemas are made of the payloads' structs.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from console.operations_allocation import AllocationPlan
from console.operations_hosts import EnvironmentPlan
from console.recording.reader import Contents
from console.state.allocation import Allocation
from console.state.cost import Cost, Price, cost_of
from console.state.host_check import HostCheck
from console.state.mappings import CopyPlan
from console.state.sanitize import sanitize_log
from console.state.training_comparison import TrainingRecord
from remote.protocol.approvals import Approval, ApprovalList
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.bulk import BulkDone
from remote.protocol.errors import ErrorInfo
from remote.protocol.jobs import Job
from remote.protocol.journal import JournalPage
from remote.protocol.mappings import CoverageReport
from remote.protocol.notifications import NotificationList, NotificationRecord
from remote.protocol.progress import ExtractionPlanned, ServerReady
from remote.protocol.reports import (
    ExtractionPlan,
    ExtractionReport,
    MappingInspection,
    MappingReport,
    RunPlan,
    ServerPlan,
    StagePlan,
    TrainingPlan,
    VerdictReport,
)
from remote.protocol.requests import LogPage
from remote.protocol.secrets import SecretList
from remote.protocol.storage import ReclaimPlan, StorageReport, TrashEntry
from remote.protocol.telemetry import GpuTopology, TelemetrySample
from remote.protocol.tuning import TuningPlan, TuningReport

SCHEMA_VERSION = 1
"""Raised when a document changes in a way that would break a reader."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that is made of several answers."""


class PricedPlan(RunPlan, frozen=True, kw_only=True, tag="run_plan"):
    """A run's plan and what its time on the host costs, where a price is set for that host."""

    cost: Cost | None


def priced(plan: RunPlan, price: Price | None) -> PricedPlan:
    """`plan` at `price`."""
    return PricedPlan(**msgspec.structs.asdict(plan), cost=cost_of(price, plan.seconds))


class StartedRun(Document, frozen=True, kw_only=True):
    """A run that was started; the verdict is there when it was waited for and reached."""

    job: Job
    verdict: VerdictReport | None


class ServerCommands(Document, frozen=True, kw_only=True):
    """The stages of a run that serve, and what stands in their way."""

    servers: list[StagePlan]
    problems: list[str]


class StartedExtraction(Document, frozen=True, kw_only=True):
    """An extraction by itself; no job where its store was there already."""

    plan: ExtractionPlan
    job: Job | None


class StartedServer(Document, frozen=True, kw_only=True):
    """A server's plan; its job when it was started, its address when that was waited for."""

    plan: ServerPlan
    job: Job | None
    ready: ServerReady | None


class StartedBenchmark(Document, frozen=True, kw_only=True):
    """A measurement of a server; its figures when they were waited for."""

    job: Job
    report: BenchmarkReport | None


class StartedTuning(Document, frozen=True, kw_only=True):
    """A tuning's plan; its job when it was started, what it found when that was waited for."""

    plan: TuningPlan
    job: Job | None
    report: TuningReport | None


class StartedTraining(Document, frozen=True, kw_only=True):
    """A training that was started, with its plan; without one where it goes on."""

    plan: TrainingPlan | None
    job: Job


class JobOutcome(Document, frozen=True, kw_only=True):
    """A job that was started, and waited for unless that was not wanted."""

    job: Job


class MadeMapping(Document, frozen=True, kw_only=True):
    """The job of a build, a copy or a conversion, and the state of the mapping that it made, once it has."""

    job: Job
    mapping: MappingReport | None


class MeasuredCoverage(Document, frozen=True, kw_only=True):
    """The job that measures, and what it found, once it has."""

    job: Job
    report: CoverageReport | None


class LogText(Document, frozen=True, kw_only=True):
    """A page of a log: the text of the bytes `[offset, next_cursor)`; bytes `[start, size)` can be read."""

    job_id: str
    offset: int
    next_cursor: int
    start: int
    size: int
    text: str


def log_text(page: LogPage, *, goes_on: bool = False) -> LogText:
    """The document of a page; a character that the page's end cuts in two is left for the next, unless the log `goes_on` as a stream."""
    data = page.data
    if not goes_on and page.offset + len(data) < page.size:
        data = data[: len(data) - _begun_character(data)] or data
    return LogText(
        job_id=page.job_id,
        offset=page.offset,
        next_cursor=page.offset + len(data),
        start=page.start,
        size=page.size,
        text=sanitize_log(data.decode(errors="replace")),
    )


def _begun_character(data: bytes) -> int:
    """How many bytes at the end are the beginning of a UTF-8 character."""
    for count in range(1, min(3, len(data)) + 1):
        byte = data[-count]
        if byte >= 0xC0:
            return count if count < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


class Reclaimed(Document, frozen=True, kw_only=True):
    """What was or would be moved into the trash, and the trash as it is then."""

    plan: ReclaimPlan
    trash: list[TrashEntry]
    done: bool


class HttpAnswer(Document, frozen=True, kw_only=True):
    """A server's answer to one request; `body` is what its JSON says, else its text."""

    status: int
    content_type: str
    body: Any


class CheckedHost(HostCheck, frozen=True, kw_only=True):
    """What a look at a host found, and whether Roost can work there."""

    usable: bool


class TrustedKey(Document, frozen=True, kw_only=True):
    """Whose key is trusted from now on."""

    host: str
    key_of: str
    fingerprint: str


class DemoHost(Document, frozen=True, kw_only=True):
    """A host that was started to be looked at."""

    host: str
    scenario: str | None


class EmbeddedHost(Document, frozen=True, kw_only=True, omit_defaults=True):
    """What was done to the embedded host."""

    prepared: bool | None = None
    stopped: bool | None = None
    demo_hosts: list[str] | None = None


def http_answer(status: int, content_type: str, text: str) -> HttpAnswer:
    """A server's answer as a document."""
    return HttpAnswer(status=status, content_type=content_type, body=_parsed(text) if "json" in content_type else text)


def _parsed(text: str) -> object:
    """What a server calls JSON, or its text where that is none, or none that a document can hold."""
    try:
        body = json.loads(text)
        msgspec.json.encode(body)
    except (ValueError, RecursionError):
        return text
    return body


DOCUMENTS: dict[str, Any] = {
    "allocation": Allocation | None,
    "allocation_plan": AllocationPlan,
    "approval": Approval,
    "approvals": ApprovalList,
    "benchmark": StartedBenchmark,
    "benchmark_report": BenchmarkReport,
    "build": MadeMapping,
    "check": CheckedHost,
    "conversion": JobOutcome,
    "convert": MadeMapping,
    "copy": MadeMapping,
    "copy_plan": CopyPlan,
    "coverage": MeasuredCoverage,
    "coverage_report": CoverageReport,
    "demo": DemoHost,
    "embedded": EmbeddedHost,
    "environment": EnvironmentPlan | None,
    "error": ErrorInfo,
    "export": JobOutcome,
    "extraction": StartedExtraction,
    "extraction_plan": ExtractionPlanned,
    "extraction_report": ExtractionReport,
    "hosts": list[str],
    "job": Job | None,
    "jobs": list[Job],
    "journal": JournalPage,
    "log": LogText,
    "notification": NotificationRecord,
    "notifications": NotificationList,
    "inspection": MappingInspection,
    "mapping": MappingReport,
    "merge": JobOutcome,
    "plan": PricedPlan,
    "reclaim": Reclaimed,
    "recording": Contents,
    "reply": HttpAnswer,
    "run": StartedRun,
    "scenarios": dict[str, str],
    "secrets": SecretList,
    "server": StartedServer,
    "server_plan": ServerCommands,
    "spec": dict[str, Any],
    "storage": StorageReport,
    "telemetry": TelemetrySample,
    "topology": GpuTopology,
    "training": StartedTraining,
    "training_comparison": list[TrainingRecord],
    "training_plan": TrainingPlan,
    "transfer": BulkDone,
    "trash": list[TrashEntry],
    "trusted": TrustedKey,
    "tuning": StartedTuning,
    "tuning_report": TuningReport,
    "verdict": VerdictReport,
    "verification": JobOutcome,
    "webhook_key": str,
}
"""What each document's payload is."""

_AGE = {
    "anyOf": [{"type": "number"}, {"type": "null"}],
    "description": "Seconds since `sampled_at`, by the host's clock.",
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document `name`, complete in itself."""
    documents, definitions = _schemas((name,))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **documents[name], "$defs": definitions}


def schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schema of every document by its name, and the definitions (`$defs`) that they all refer to."""
    return _schemas(tuple(DOCUMENTS))


@cache
def _schemas(names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    payloads, definitions = msgspec.json.schema_components(
        [DOCUMENTS[name] for name in names], ref_template="#/$defs/{name}"
    )
    documents = {
        name: {
            "title": name,
            "type": "object",
            "properties": {"schema_version": {"const": SCHEMA_VERSION}, name: payload},
            "required": ["schema_version", name],
        }
        for name, payload in zip(names, payloads, strict=True)
    }
    return documents, {title: _with_age(definition) for title, definition in definitions.items()}


def _with_age(definition: dict[str, Any]) -> dict[str, Any]:
    """A reading's definition, with the age that `with_ages` puts beside its moment."""
    properties = definition.get("properties", {})
    return definition | {"properties": properties | {"age_s": _AGE}} if "sampled_at" in properties else definition


def with_ages(value: Any, now: float) -> Any:  # noqa: ANN401 - whatever msgspec encodes
    """`value` as JSON has it, beside every `sampled_at` its age in seconds at `now`, the host's clock."""
    return _aged(msgspec.to_builtins(value), now)


def _aged(value: Any, now: float) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, list):
        return [_aged(item, now) for item in value]
    if not isinstance(value, dict):
        return value
    aged: dict[str, Any] = {}
    for key, item in value.items():
        aged[key] = _aged(item, now)
        if key == "sampled_at":
            aged["age_s"] = None if item is None else round(max(0.0, now - item), 3)
    return aged


class UnknownField(ValueError):
    """A field that a document does not have; says which there are at that place."""


def require_field(names: list[str], path: str) -> None:
    """Raises UnknownField unless one of the documents `names` can have the field `path` (`state.since`)."""
    choices: set[str] = set()
    for name in names:
        schema = schema_of(name)
        places = [schema["properties"][name]]
        for word in path.split("."):
            found = [step for place in places for step in _fields(place, schema["$defs"]).items()]
            choices |= {key for key, _ in found}
            places = [place for key, place in found if key in (word, "*")]
        if places:
            return
    raise UnknownField(f"there is no field {path!r}; there are {', '.join(sorted(choices - {'*'}))}")


def _fields(place: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that something of this schema may have, those of a list's items included; `*` stands for any."""
    if "$ref" in place:
        return _fields(definitions[place["$ref"].rpartition("/")[2]], definitions)
    found: dict[str, Any] = dict(place.get("properties", {}))
    if isinstance(place.get("additionalProperties"), dict):
        found["*"] = place["additionalProperties"]
    for part in [*place.get("anyOf", []), *([place["items"]] if isinstance(place.get("items"), dict) else [])]:
        for key, value in _fields(part, definitions).items():
            found[key] = {"anyOf": [found[key], value]} if key in found else value
    return found


def select(value: Any, paths: list[str]) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Of a payload only the fields `paths`, of a list those of every item; a field that is not there is null."""
    if isinstance(value, list):
        return [select(item, paths) for item in value]
    return {path: _at(value, path.split(".")) for path in paths} if isinstance(value, dict) else value


def _at(value: Any, words: list[str]) -> Any:  # noqa: ANN401 - whatever JSON holds
    if not words:
        return value
    if isinstance(value, list):
        return [_at(item, words) for item in value]
    return _at(value.get(words[0]), words[1:]) if isinstance(value, dict) else None
