"""Writing a mapping in another layout."""

from pathlib import Path

from remote.agents.harness import JobContext
from remote.agents.vocabulary.building import mapping_bytes, sizes
from remote.agents.vocabulary.publishing import publish
from remote.artifacts.mapping import SaveTensors
from remote.artifacts.mapping_conversion import conversion_fingerprint, read_convertible, write_layout
from remote.artifacts.mapping_validation import require_valid, validate_mapping
from remote.artifacts.target_tokens import target_vocab_size
from remote.paths import resolve_path
from remote.protocol.jobs import JobResult
from remote.protocol.mappings import MappingConvertSpec
from remote.protocol.progress import MappingBuilt, Note


def convert(spec: MappingConvertSpec, job: JobContext, save_tensors: SaveTensors) -> JobResult:
    """Read in any layout, put right what only lies there wrongly, write, read again."""
    path, destination = (resolve_path(job.root, one) for one in (spec.source, spec.destination))
    model = None if spec.target_model is None else resolve_path(job.root, spec.target_model)
    source = read_convertible(path, None if model is None else target_vocab_size(model))
    for code in source.repaired:
        found = next(finding for finding in source.report.findings if finding.code == code)
        job.tell(Note(level="warning", text=f"put right: {found.message} [{code}]"))

    def write(tree: Path) -> None:
        write_layout(tree, source, spec.layout, target_model=str(model or ""), save_tensors=save_tensors)
        require_valid(validate_mapping(tree))

    mark = conversion_fingerprint(source, spec.layout)
    reference = publish(job, "mapping", destination, mark, mapping_bytes(source.mapping), write)
    coverage = source.report.coverage
    job.tell(MappingBuilt(coverage=coverage, **sizes(source.mapping)))
    return JobResult(
        outputs=[reference],
        summary={**sizes(source.mapping), "layout": spec.layout, "repaired": ", ".join(source.repaired) or None},
    )
