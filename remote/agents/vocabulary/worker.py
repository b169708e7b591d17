"""The vocabulary agent's work: build a mapping from a store, or copy one; either way it is validated before it counts."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from remote.agents.harness import JobContext, main
from remote.agents.vocabulary.building import build, mapping_bytes, sizes
from remote.agents.vocabulary.conversion import convert
from remote.agents.vocabulary.coverage import measure
from remote.agents.vocabulary.publishing import FILES, SMALL_BYTES, publish
from remote.artifacts.atomic import publish_directory
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.manifest import artifact_ref, fingerprint_of
from remote.artifacts.mapping import FILE_NAMES, Mapping, Tensors, write_mapping
from remote.artifacts.mapping_copy import copy_mapping
from remote.artifacts.mapping_validation import read_mapping, validate_mapping
from remote.artifacts.target_tokens import target_vocab_size
from remote.artifacts.token_counts import CountsProperties, write_counts
from remote.errors import Precondition
from remote.paths import resolve_path
from remote.protocol.jobs import ArtifactRef, JobResult
from remote.protocol.mappings import INCOMING, CountedSource, MappingBuildSpec, MappingConvertSpec, MappingCoverageSpec
from remote.protocol.progress import FilesCopied, MappingBuilt
from remote.protocol.specs import MappingCopySpec, VocabularySpec

VocabularyWork = VocabularySpec | MappingCopySpec | MappingBuildSpec | MappingConvertSpec | MappingCoverageSpec


def work(spec: VocabularyWork, job: JobContext) -> JobResult:
    """Do what `spec` says; the result's summary has the sizes and the coverage."""
    match spec:
        case MappingCopySpec():
            return _copy_by_itself(spec, job)
        case MappingBuildSpec():
            return build(spec, job, save_tensors)
        case MappingConvertSpec():
            return convert(spec, job, save_tensors)
        case MappingCoverageSpec():
            return measure(spec, job)
        case VocabularySpec():
            return _make(spec, job)


def _copy_by_itself(spec: MappingCopySpec, job: JobContext) -> JobResult:
    source, destination = (resolve_path(job.root, one) for one in (spec.source, spec.destination))
    reference = job.write_with_room(
        destination,
        _copy_bytes(source),
        lambda: copy_mapping(
            source,
            destination,
            replace=spec.replace,
            on_progress=lambda done, total: job.tell(FilesCopied(bytes_done=done, bytes_total=total)),
            origin=spec.origin,
        ),
        inodes_needed=FILES,
    )
    if spec.origin is not None and source.parent == job.root / INCOMING:
        shutil.rmtree(source, ignore_errors=True)
    return _result([reference], read_mapping(destination), validate_mapping(destination).coverage, job)


def _make(spec: VocabularySpec, job: JobContext) -> JobResult:
    vocab_size = target_vocab_size(Path(spec.target_model))
    store = StoreReader(Path(spec.store))
    counts = store.token_counts(vocab_size)
    source = spec.vocabulary.source
    if source is None:
        mapping = Mapping.from_counts(counts, spec.vocabulary.draft_vocab_size)
    else:
        mapping = read_mapping(Path(source))
        _check_fit(mapping, spec, vocab_size)
    coverage = mapping.coverage(counts)
    _check_coverage(coverage, spec)
    outputs = [_build(spec, mapping, coverage, job) if source is None else _copy(spec, Path(source), coverage, job)]
    if spec.counts is not None:
        outputs.append(_keep_counts(Path(spec.counts), spec, store, counts, job))
    return _result(outputs, mapping, coverage, job)


def _keep_counts(
    place: Path, spec: VocabularySpec, store: StoreReader, counts: "np.ndarray[Any, Any]", job: JobContext
) -> ArtifactRef:
    """What was counted in the store; what was kept of an earlier one is put aside."""
    sha256 = artifact_ref("store", Path(spec.store)).manifest_sha256
    counted = CountedSource(path=spec.store, kind="store", weight=1.0, tokens=int(counts.sum()), sha256=sha256)
    properties = CountsProperties(
        target_model=spec.target_model,
        tokenizer_sha256=store.properties.tokenizer_sha256,
        vocab_size=len(counts),
        tokens=float(counts.sum()),
        sources=[counted],
    )
    mark = fingerprint_of({"store": sha256})

    def write(tree: Path) -> None:
        write_counts(tree, counts, properties, fingerprint=mark)

    return publish(job, "counts", place, mark, counts.nbytes, write, replace=True)


def _check_fit(mapping: Mapping, spec: VocabularySpec, vocab_size: int) -> None:
    if len(mapping.t2d) != vocab_size:
        raise Precondition(
            f"the mapping {spec.vocabulary.source} is for a target of {len(mapping.t2d)} tokens, this one has {vocab_size}",
            hint="build the mapping from this run's store: remove vocabulary.source",
        )
    if len(mapping.d2t) != spec.vocabulary.draft_vocab_size:
        raise Precondition(
            f"the mapping {spec.vocabulary.source} has {len(mapping.d2t)} draft tokens, "
            f"the run asks for {spec.vocabulary.draft_vocab_size}",
            hint="set vocabulary.draft_vocab_size to the mapping's size",
        )


def _check_coverage(coverage: float | None, spec: VocabularySpec) -> None:
    minimum = spec.vocabulary.minimum_coverage
    if minimum is not None and (coverage is None or coverage < minimum):
        shown = "an unknown share" if coverage is None else f"{100 * coverage:.5g}%"
        raise Precondition(
            f"the draft vocabulary covers {shown} of the store's answer tokens, the run asks for {100 * minimum:.5g}%",
            hint="raise vocabulary.draft_vocab_size, or build the mapping from this store instead of copying it",
        )


def _copy_bytes(source: Path) -> int:
    """What a copy of `source` takes; whether it is one to copy at all is told by the copying."""
    sizes = (source / name for name in FILE_NAMES)
    return sum(path.stat().st_size for path in sizes if path.is_file()) + SMALL_BYTES


def _build(spec: VocabularySpec, mapping: Mapping, coverage: float | None, job: JobContext) -> ArtifactRef:
    final = Path(spec.mapping)
    part = final.with_name(f"{final.name}.part")
    return job.write_with_room(
        final,
        mapping_bytes(mapping) + SMALL_BYTES,
        lambda: _write(spec, mapping, coverage, part),
        inodes_needed=FILES,
        clean=lambda: shutil.rmtree(part, ignore_errors=True),
    )


def _write(spec: VocabularySpec, mapping: Mapping, coverage: float | None, part: Path) -> ArtifactRef:
    final = Path(spec.mapping)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write_mapping(
        part,
        mapping,
        target_model=spec.target_model,
        coverage=coverage,
        fingerprint=spec.fingerprint,
        inputs={"store": artifact_ref("store", Path(spec.store)).manifest_sha256},
        save_tensors=save_tensors,
    )
    read_mapping(part)
    publish_directory(part, final)
    return artifact_ref("mapping", final)


def save_tensors(path: Path, tensors: Tensors) -> None:
    """Write a vector, or several by name, as `torch.save` does."""
    import torch  # noqa: PLC0415 - a copy works on hosts without torch

    if isinstance(tensors, dict):
        torch.save({name: torch.from_numpy(one) for name, one in tensors.items()}, path)
    else:
        torch.save(torch.from_numpy(tensors), path)


def _copy(spec: VocabularySpec, source: Path, coverage: float | None, job: JobContext) -> ArtifactRef:
    destination = Path(spec.mapping)
    return job.write_with_room(
        destination,
        _copy_bytes(source),
        lambda: copy_mapping(
            source,
            destination,
            on_progress=lambda done, total: job.tell(FilesCopied(bytes_done=done, bytes_total=total)),
            fingerprint=spec.fingerprint,
            coverage=coverage,
        ),
        inodes_needed=FILES,
    )


def _result(outputs: list[ArtifactRef], mapping: Mapping, coverage: float | None, job: JobContext) -> JobResult:
    job.tell(MappingBuilt(coverage=coverage, **sizes(mapping)))
    return JobResult(outputs=outputs, summary={**sizes(mapping), "coverage": coverage})


if __name__ == "__main__":
    main((VocabularySpec, MappingCopySpec, MappingBuildSpec, MappingConvertSpec, MappingCoverageSpec), work)
