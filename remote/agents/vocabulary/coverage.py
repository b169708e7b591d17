"""How much of given answers a mapping covers, and what the best one would."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from remote.agents.harness import JobContext
from remote.agents.vocabulary.publishing import publish
from remote.agents.vocabulary.sources import Counted, Counter, find_target, merged
from remote.artifacts.manifest import Manifest, fingerprint_of, write_manifest
from remote.artifacts.mapping import Mapping
from remote.artifacts.mapping_conversion import read_convertible
from remote.artifacts.mapping_coverage import (
    after_first,
    best_coverage,
    curve_sizes,
    missing_ids,
    until_full,
    verifications,
)
from remote.artifacts.target_tokens import decode_tokens
from remote.errors import UsageError
from remote.paths import resolve_path
from remote.protocol.jobs import JobResult
from remote.protocol.mappings import CoverageReport, MappingCoverageSpec, MissingToken, TokenSource
from remote.protocol.progress import Note

FORMAT = "roost-vocabulary-coverage"
PRODUCER = "roost vocabulary 2"
DIRECTORY_NAME, REPORT_NAME = "coverage", "coverage.json"

Array = np.ndarray[Any, Any]


def measure(spec: MappingCoverageSpec, job: JobContext) -> JobResult:
    """Count, compare, write the report into the job's directory."""
    model = find_target(spec.target_model, spec.sources, job.root)
    counter = Counter(model, job.root, max_length=spec.max_length, variables=spec.chat_template_kwargs)
    given, repaired = _given(spec, job, counter.vocab_size)
    counted = [_count(counter, source, job) for source in spec.sources]
    report = _report(spec, model, counted, given)
    if repaired:
        job.tell(Note(level="warning", text=f"the mapping is read as what it means: {', '.join(repaired)}"))
    mark = fingerprint_of({"report": msgspec.to_builtins(report)})

    def write(tree: Path) -> None:
        (tree / REPORT_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
        manifest = Manifest(
            format=FORMAT,
            version=1,
            fingerprint=mark,
            inputs={one.path: one.sha256 for one in report.sources},
            producer=PRODUCER,
            created_at=job.directory.stat().st_mtime,
            files=[],
            properties={"coverage": report.coverage},
        )
        write_manifest(tree, manifest, [REPORT_NAME])

    reference = publish(job, "coverage", job.directory / DIRECTORY_NAME, mark, 1 << 20, write)
    return JobResult(
        outputs=[reference],
        summary={"coverage": report.coverage, "best_coverage": report.best_coverage, "tokens": report.tokens},
    )


def _given(spec: MappingCoverageSpec, job: JobContext, vocab_size: int) -> tuple[Mapping | None, list[str]]:
    if spec.mapping is not None:
        source = read_convertible(resolve_path(job.root, spec.mapping), vocab_size)
        return source.mapping, source.repaired
    if spec.draft_vocab_size is None:
        raise UsageError("neither a mapping nor a size of one is given", hint="name a mapping, or --size D")
    return None, []


def _count(counter: Counter, source: TokenSource, job: JobContext) -> Counted:
    job.check_stop()
    found = counter.count(source)
    job.tell(Note(level="info", text=f"{found.source.tokens:,} answer tokens in {found.source.path}"))
    return found


def _report(
    spec: MappingCoverageSpec, model: Path, counted: Sequence[Counted], given: Mapping | None
) -> CoverageReport:
    counts = merged(counted, spec.chat_template_kwargs)
    size = len(given.d2t) if given is not None else spec.draft_vocab_size or 0
    best = Mapping.from_counts(counts, size)
    mapping = given or best
    total = float(counts.sum())
    missing = missing_ids(counts, mapping)
    shown = missing[: spec.missing]
    texts = decode_tokens(model, shown.tolist())
    curve = (
        best_coverage(counts, spec.curve)
        if spec.curve
        else until_full(best_coverage(counts, curve_sizes(len(counts), size)), size)
    )
    return CoverageReport(
        mapping=spec.mapping,
        target_model=str(model),
        sources=[one.source for one in counted],
        tokens=total,
        distinct_tokens=int((counts > 0).sum()),
        target_vocab_size=len(counts),
        draft_vocab_size=size,
        coverage=mapping.coverage(counts) or 0.0,
        best_coverage=best.coverage(counts) or 0.0,
        proposals=spec.proposals,
        acceptance_length_bound=_bound(counted, mapping, spec.proposals),
        best_acceptance_length_bound=_bound(counted, best, spec.proposals),
        curve=curve,
        missing=[
            MissingToken(token_id=int(token), count=float(counts[token]), share=float(counts[token] / total), text=text)
            for token, text in zip(shown, texts, strict=True)
        ],
        missing_tokens=len(missing),
        minimum_coverage=spec.minimum_coverage,
    )


def _bound(counted: Sequence[Counted], mapping: Mapping, proposals: int) -> float | None:
    """Tokens per verification of a perfect drafter, each source with its weight; None where answers are not known."""
    tokens = needed = 0.0
    for one in counted:
        if one.answers is None:
            return None
        for part in map(after_first, one.answers()):
            tokens += one.source.weight * len(part.tokens)
            needed += one.source.weight * verifications(mapping.t2d[part.tokens], part.starts, proposals)
    return tokens / needed if needed else None
