"""Which mappings a host's jobs know of, and what a copy over one of them would mean; pure."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from remote.protocol.jobs import Finished, Job
from remote.protocol.mappings import MappingCoverageSpec
from remote.protocol.reports import MappingReport
from remote.protocol.specs import RunSpec


def absolute(path: str, root: str) -> str:
    """A path on the host as it is meant: what does not begin with a slash lies below the root."""
    clean = path.rstrip("/")
    return clean if clean.startswith("/") else f"{root.rstrip('/')}/{clean}"


def mapping_paths(jobs: Iterable[Job], root: str) -> list[str]:
    """Where the mappings lie that jobs made, copied, measured or took from elsewhere, in the order of `jobs`, each once."""
    found: dict[str, None] = {}
    for job in jobs:
        for output in job.result.outputs if job.result is not None else ():
            if output.kind == "mapping":
                found[absolute(output.path, root)] = None
        named = None
        match job.spec:
            case MappingCoverageSpec(mapping=named):
                pass
            case RunSpec(run=run):
                named = run.vocabulary.source
            case _:
                pass
        if named is not None:
            found[absolute(named, root)] = None
    return list(found)


def coverage_job(jobs: Iterable[Job], path: str, root: str) -> Job | None:
    """The first of `jobs` that measured the coverage of the mapping at the absolute `path`."""
    return next((job for job in jobs if _measured(job, path, root)), None)


def _measured(job: Job, path: str, root: str) -> bool:
    match job:
        case Job(spec=MappingCoverageSpec(mapping=str() as mapping), state=Finished(outcome="succeeded")):
            return absolute(mapping, root) == path
        case _:
            return False


class Consequence(NamedTuple):
    """What copying a mapping to a place would do there, and whether that puts another one aside, or does anything at all."""

    words: str
    replaces: bool = False
    is_needed: bool = True


class CopyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy would do: what goes, what lies at the destination (None for no mapping), and what stands against it.

    `replaces` is whether another mapping would be put aside, which has to be said; `is_needed` is False where the same lies there.
    """

    source: MappingReport
    host: str
    destination: str
    there: MappingReport | None
    consequence: str
    replaces: bool
    is_needed: bool
    problems: list[str]


def copy_consequence(source: MappingReport, there: MappingReport | None) -> Consequence:
    """`there` is what lies at the destination; None for no mapping."""
    if there is None:
        return Consequence("no mapping lies there; anything else that does stays, and the copy is refused")
    if there.valid and _hashes(there) == _hashes(source):
        if there.provenance == "roost":
            return Consequence("the same mapping lies there already", is_needed=False)
        return Consequence("the same files lie there already; they get a manifest")
    size = "" if there.draft_vocab_size is None else f" of {there.draft_vocab_size:,} tokens"
    return Consequence(f"ANOTHER mapping{size} lies there; it is put aside and kept beside the new one", replaces=True)


def why_not_copied(source: MappingReport) -> str | None:
    """What stands against copying `source`, and what to do; None when nothing does."""
    if not source.valid:
        codes = ", ".join(finding.code for finding in source.findings if finding.severity == "error")
        return f"It must not be used ({codes}); the findings say what to do."
    if source.layout != "roost":
        return f"It lies in the layout of {source.layout}: `roost vocabulary convert` makes one that can be copied."
    return None


def _hashes(report: MappingReport) -> dict[str, str]:
    return {file.name: file.sha256 for file in report.files}
