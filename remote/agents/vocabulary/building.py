"""Building a mapping from counts, which are kept."""

from pathlib import Path
from typing import Any

import numpy as np

from remote.agents.harness import JobContext
from remote.agents.vocabulary.publishing import find_same, publish
from remote.agents.vocabulary.sources import Counter, find_target, merged
from remote.artifacts.manifest import fingerprint_of
from remote.artifacts.mapping import Mapping, SaveTensors, write_mapping
from remote.artifacts.mapping_validation import read_mapping
from remote.artifacts.target_tokens import special_ids
from remote.artifacts.token_counts import CountsProperties, force_tokens, write_counts
from remote.errors import UsageError
from remote.paths import resolve_path
from remote.protocol.jobs import JobResult
from remote.protocol.mappings import MappingBuildSpec
from remote.protocol.progress import MappingBuilt, Note


def build(spec: MappingBuildSpec, job: JobContext, save_tensors: SaveTensors) -> JobResult:
    """Count, keep the counts, build, validate; the summary has sizes and coverage."""
    model = find_target(spec.target_model, spec.sources, job.root)
    destination, kept = (resolve_path(job.root, path) for path in (spec.destination, spec.counts))
    if destination == kept or destination in kept.parents or kept in destination.parents:
        raise UsageError(f"{destination} and {kept} lie in each other", hint="give the counts a place of their own")
    counter = Counter(model, job.root, max_length=spec.max_length, variables=spec.chat_template_kwargs)
    special = special_ids(model) if spec.force_special else []
    forced: list[int] = sorted({*spec.forced, *special})
    sources, counted = [], []
    for source in spec.sources:
        job.check_stop()
        found = counter.count(source)
        job.tell(Note(level="info", text=f"{found.source.tokens:,} answer tokens in {found.source.path}"))
        sources.append(found.source)
        counted.append(found)
    counts = merged(counted, spec.chat_template_kwargs)
    mapping = Mapping.from_counts(force_tokens(counts, forced, spec.draft_vocab_size), spec.draft_vocab_size)
    coverage = mapping.coverage(counts)
    properties = CountsProperties(
        target_model=str(model),
        tokenizer_sha256=counter.tokenizer_sha256,
        vocab_size=counter.vocab_size,
        tokens=float(counts.sum()),
        sources=sources,
        chat_template_kwargs=spec.chat_template_kwargs,
    )
    counts_mark = fingerprint_of(
        {"counts": [(one.sha256, one.weight) for one in sources], "cut": spec.max_length}
        | ({"template": spec.chat_template_kwargs} if spec.chat_template_kwargs else {})
    )
    mark = fingerprint_of({"counts": counts_mark, "size": spec.draft_vocab_size, "forced": forced})
    find_same("mapping", destination, mark)
    counts_reference = publish(
        job,
        "counts",
        kept,
        counts_mark,
        counts.nbytes,
        lambda tree: write_counts(tree, counts, properties, fingerprint=counts_mark),
    )

    def write(tree: Path) -> None:
        write_mapping(
            tree,
            mapping,
            target_model=str(model),
            coverage=coverage,
            fingerprint=mark,
            inputs={"counts": str(kept), "counts_manifest": counts_reference.manifest_sha256},
            save_tensors=save_tensors,
        )
        read_mapping(tree)

    reference = publish(job, "mapping", destination, mark, mapping_bytes(mapping), write)
    job.tell(MappingBuilt(coverage=coverage, draft_vocab_size=len(mapping.d2t), target_vocab_size=len(mapping.t2d)))
    return JobResult(
        outputs=[reference, counts_reference], summary={**sizes(mapping), **told(counts, forced), "coverage": coverage}
    )


def sizes(mapping: Mapping) -> dict[str, int]:
    """The two sizes of a mapping, for a job's summary."""
    return {"draft_vocab_size": len(mapping.d2t), "target_vocab_size": len(mapping.t2d)}


def mapping_bytes(mapping: Mapping) -> int:
    """What a mapping's tensors take, each written twice."""
    return 2 * (mapping.d2t.nbytes + mapping.t2d.nbytes)


def told(counts: "np.ndarray[Any, Any]", forced: list[int]) -> dict[str, float | int]:
    """What was counted, for a job's summary."""
    return {"tokens": float(counts.sum()), "distinct_tokens": int((counts > 0).sum()), "forced_tokens": len(forced)}
