"""The export of one checkpoint of a training: a drafter directory as the training itself leaves it."""

from pathlib import Path

from remote.agents.harness import JobContext, main
from remote.agents.training.checkpoint import (
    acceptance_of,
    best_checkpoint,
    checkpoint_of_step,
    checkpoint_step,
    newest_checkpoint,
    restore_weights,
)
from remote.agents.training.publishing import Summary, write_drafter
from remote.agents.training.setup import shape_drafter
from remote.artifacts.manifest import artifact_ref, read_manifest, verify
from remote.errors import Conflict, Precondition
from remote.paths import resolve_path
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Note
from remote.protocol.specs import DrafterExportSpec


def choose(spec: DrafterExportSpec) -> Path:
    """The checkpoint that is to be exported; raises Precondition where there is none."""
    directory, mark = Path(spec.training.checkpoints), spec.training.fingerprint
    if spec.step is not None:
        return checkpoint_of_step(directory, mark, spec.step)
    found = best_checkpoint(directory, mark) or newest_checkpoint(directory, mark)
    if found is None:
        raise Precondition(f"there is no sound checkpoint of this training in {directory}")
    return found


def work(spec: DrafterExportSpec, job: JobContext) -> JobResult:
    """Write the drafter of the chosen checkpoint; the same one that is there already is the result, another one a Conflict."""
    final = resolve_path(job.root, spec.directory)
    checkpoint = choose(spec)
    step, acceptance = checkpoint_step(checkpoint), acceptance_of(checkpoint)
    if final.exists():
        return _made(final, spec, step)
    length = None if acceptance is None else acceptance.length
    measured = "not measured" if length is None else f"acceptance length {length:.3f} on validation text"
    job.tell(Note(level="info", text=f"exports step {step}: {measured}"))
    exportable = shape_drafter(spec.training)
    if spec.layout == "speculators" and exportable.drafter.shape.latent is not None:
        raise Precondition(
            "speculators 0.9 has no drafter with latent attention",
            hint="leave --layout out: SGLang and vLLM serve it as it is",
        )
    restore_weights(exportable.drafter, checkpoint)
    summary: Summary = {"steps": step, "exported_step": step, "validation_acceptance_length": length}
    write_drafter(final, spec.training, exportable, summary, job, layout=spec.layout)
    return JobResult(outputs=[artifact_ref("drafter", final)], summary=dict(summary))


def _made(final: Path, spec: DrafterExportSpec, step: int) -> JobResult:
    manifest = read_manifest(final)
    summary: Summary = manifest.properties.get("summary", {})
    found = (manifest.fingerprint, summary.get("exported_step"), manifest.properties.get("layout"))
    if found != (spec.training.fingerprint, step, spec.layout):
        raise Conflict(
            f"{final} is there already, and is not step {step} of this training for {spec.layout}",
            hint="name another directory, or move it away",
        )
    verify(final)
    return JobResult(outputs=[artifact_ref("drafter", final)], summary=dict(summary))


if __name__ == "__main__":
    main(DrafterExportSpec, work)
