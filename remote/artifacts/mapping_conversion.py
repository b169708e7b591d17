"""Writing a mapping in another layout, with what only lies there wrongly put right on the way."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from remote.artifacts.manifest import Manifest, artifact_ref, fingerprint_of, write_manifest
from remote.artifacts.mapping import FORMAT, PRODUCER, VERSION, Mapping, SaveTensors, write_mapping
from remote.artifacts.mapping_layouts import find_mapping, layout_place
from remote.artifacts.mapping_pair import REPAIRABLE, absolute_ids, meant_ids
from remote.artifacts.mapping_validation import examine
from remote.errors import Precondition
from remote.protocol.jobs import ArtifactRef
from remote.protocol.mappings import WrittenLayout
from remote.protocol.reports import MappingReport


class Source(NamedTuple):
    """A mapping that is to be written elsewhere, what was said of it, and the codes of what is put right."""

    mapping: Mapping
    report: MappingReport
    repaired: list[str]


def read_convertible(path: Path, vocab_size: int | None) -> Source:
    """The mapping in any layout, `vocab_size` being asked where nothing there says it.

    Raises Precondition where it is wrong in a way that leaves a doubt which tokens are meant.
    """
    report, arrays = examine(find_mapping(path), path)
    errors = [found for found in report.findings if found.severity == "error"]
    doubtful = [found for found in errors if found.code not in REPAIRABLE]
    if doubtful or arrays.d2t is None:
        words = "; ".join(f"{found.message} [{found.code}]" for found in doubtful)
        raise Precondition(
            f"the mapping {path} cannot be converted: {words}", hint=doubtful[0].fix if doubtful else None
        )
    size = vocab_size if report.target_vocab_size is None else report.target_vocab_size
    if size is None:
        raise Precondition(
            f"{path} does not say how many tokens the target has", hint="name the target's directory: --target MODEL"
        )
    if vocab_size is not None and vocab_size != size:
        raise Precondition(f"{path} is for a target of {size} tokens, the named one has {vocab_size}")
    ids = meant_ids(arrays.d2t, arrays.t2d, size)
    if ids.max() >= size:
        raise Precondition(f"{path} names token {int(ids.max())}, the target has {size}", hint="name its own target")
    if len(ids) > 1 and np.array_equal(ids, arrays.d2t) and "absolute-ids" not in {found.code for found in errors}:
        # only the size of the target shows it
        report = msgspec.structs.replace(report, findings=[*report.findings, absolute_ids()])
    repaired = sorted({found.code for found in report.findings if found.code in REPAIRABLE})
    return Source(Mapping.from_target_ids(ids, size), report, repaired)


def write_layout(
    directory: Path, source: Source, layout: WrittenLayout, *, target_model: str, save_tensors: SaveTensors
) -> ArtifactRef:
    """Write a mapping's files of `layout` and a manifest into `directory`, which exists and is empty."""
    mapping, report = source.mapping, source.report
    inputs = {"source": report.path, **{file.name: file.sha256 for file in report.files}}
    fingerprint = conversion_fingerprint(source, layout)
    if layout == "roost":
        return write_mapping(
            directory,
            mapping,
            target_model=target_model,
            coverage=report.coverage,
            fingerprint=fingerprint,
            inputs=inputs,
            save_tensors=save_tensors,
        )
    place = layout_place(layout, directory, [len(mapping.d2t)])
    for name in place.names:
        _write_file(directory / name, _content(mapping, name in place.offsets, name in place.masks), save_tensors)
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        fingerprint=fingerprint,
        inputs=inputs,
        producer=PRODUCER,
        created_at=time.time(),
        files=[],
        properties={"layout": layout, "coverage": report.coverage, "vocab_size": len(mapping.t2d)},
    )
    write_manifest(directory, manifest, place.names)
    return artifact_ref("mapping", directory)


def conversion_fingerprint(source: Source, layout: WrittenLayout) -> str:
    """What determines a converted mapping: the tokens that it names and the layout."""
    mapping = source.mapping
    hashed = fingerprint_of({"ids": mapping.target_ids.tolist(), "vocab_size": len(mapping.t2d)})
    return fingerprint_of({"tokens": hashed, "layout": layout})


def _content(mapping: Mapping, has_offsets: bool, has_mask: bool) -> Any:  # noqa: ANN401, FBT001 - a tensor or two by name
    if has_offsets and has_mask:
        return {"d2t": mapping.d2t, "t2d": mapping.t2d}
    return mapping.d2t if has_offsets else mapping.t2d


def _write_file(path: Path, content: Any, save_tensors: SaveTensors) -> None:  # noqa: ANN401 - as above
    if path.suffix == ".npy":
        np.save(path, content)
    else:
        save_tensors(path, content)
