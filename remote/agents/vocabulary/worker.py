"""The vocabulary agent's work: build a mapping from a store, or copy one; either way it is validated before it counts."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from remote.agents.harness import JobContext, main
from remote.artifacts.atomic import publish_directory
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.manifest import artifact_ref
from remote.artifacts.mapping import FILE_NAMES, Mapping, write_mapping
from remote.artifacts.mapping_copy import copy_mapping
from remote.artifacts.mapping_validation import read_mapping
from remote.errors import Precondition
from remote.protocol.jobs import ArtifactRef, JobResult
from remote.protocol.progress import FilesCopied, MappingBuilt
from remote.protocol.specs import MappingCopySpec, VocabularySpec

_FILES = len(FILE_NAMES) + 3
"""Inodes of a mapping: its files, its manifest by way of another name, its directory."""

_SMALL_BYTES = 64 << 10
"""More than a manifest, the metadata and the headers take."""


def work(spec: VocabularySpec | MappingCopySpec, job: JobContext) -> JobResult:
    """Do what `spec` says; the result's summary has the sizes and the coverage."""
    match spec:
        case MappingCopySpec():
            source, destination = Path(spec.source), Path(spec.destination)
            reference = job.write_with_room(
                destination,
                _copy_bytes(source),
                lambda: copy_mapping(
                    source,
                    destination,
                    replace=spec.replace,
                    on_progress=lambda done, total: job.tell(FilesCopied(bytes_done=done, bytes_total=total)),
                ),
                inodes_needed=_FILES,
            )
            return _result(reference, read_mapping(Path(spec.destination)), None, job)
        case VocabularySpec():
            return _make(spec, job)


def _make(spec: VocabularySpec, job: JobContext) -> JobResult:
    vocab_size = _target_vocab_size(Path(spec.target_model))
    counts = StoreReader(Path(spec.store)).token_counts(vocab_size)
    source = spec.vocabulary.source
    if source is None:
        mapping = Mapping.from_counts(counts, spec.vocabulary.draft_vocab_size)
    else:
        mapping = read_mapping(Path(source))
        _check_fit(mapping, spec, vocab_size)
    coverage = mapping.coverage(counts)
    _check_coverage(coverage, spec)
    reference = _build(spec, mapping, coverage, job) if source is None else _copy(spec, Path(source), coverage, job)
    return _result(reference, mapping, coverage, job)


def _target_vocab_size(model: Path) -> int:
    config = json.loads((model / "config.json").read_bytes())
    return int(config.get("text_config", config)["vocab_size"])


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
        shown = "unknown" if coverage is None else f"{coverage:.1%}"
        raise Precondition(
            f"the draft vocabulary covers {shown} of the store's answer tokens, the run asks for {minimum:.1%}",
            hint="raise vocabulary.draft_vocab_size, or build the mapping from this store instead of copying it",
        )


def _copy_bytes(source: Path) -> int:
    """What a copy of `source` takes; whether it is one to copy at all is told by the copying."""
    sizes = (source / name for name in FILE_NAMES)
    return sum(path.stat().st_size for path in sizes if path.is_file()) + _SMALL_BYTES


def _build(spec: VocabularySpec, mapping: Mapping, coverage: float | None, job: JobContext) -> ArtifactRef:
    final = Path(spec.mapping)
    part = final.with_name(f"{final.name}.part")
    return job.write_with_room(
        final,
        2 * (mapping.d2t.nbytes + mapping.t2d.nbytes) + _SMALL_BYTES,
        lambda: _write(spec, mapping, coverage, part),
        inodes_needed=_FILES,
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
        save_tensor=_save_tensor,
    )
    read_mapping(part)
    publish_directory(part, final)
    return artifact_ref("mapping", final)


def _save_tensor(path: Path, array: "np.ndarray[Any, Any]") -> None:
    import torch  # noqa: PLC0415 - a copy works on hosts without torch

    torch.save(torch.from_numpy(array), path)


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
        inodes_needed=_FILES,
    )


def _result(reference: ArtifactRef, mapping: Mapping, coverage: float | None, job: JobContext) -> JobResult:
    sizes = {"draft_vocab_size": len(mapping.d2t), "target_vocab_size": len(mapping.t2d)}
    job.tell(MappingBuilt(coverage=coverage, **sizes))
    return JobResult(outputs=[reference], summary={**sizes, "coverage": coverage})


if __name__ == "__main__":
    main((VocabularySpec, MappingCopySpec), work)
