"""A drafter as an artifact: written whole, with the manifest that says of which training it is."""

import shutil
import time
from pathlib import Path

from remote.agents.harness import JobContext
from remote.agents.training.export import write_checkpoint
from remote.agents.training.setup import Exportable
from remote.agents.training.speculators_layout import write_speculators
from remote.agents.training.target import read_target_weights
from remote.artifacts.atomic import publish_directory
from remote.artifacts.manifest import Manifest, artifact_ref, write_manifest
from remote.protocol.specs import DrafterLayout, TrainingSpec

PRODUCER = "roost training 1"
_FILES = 4
_SMALL_BYTES = 1 << 20

Summary = dict[str, float | int | None]


def write_drafter(
    final: Path,
    spec: TrainingSpec,
    exportable: Exportable,
    summary: Summary,
    job: JobContext,
    *,
    layout: DrafterLayout = "sglang",
) -> None:
    """Publish the drafter as `final` in `layout`; a full disk pauses the job until there is room."""
    part = final.with_name(f"{final.name}.part")
    weights = sum(value.nbytes for value in exportable.drafter.state_dict().values())
    if layout == "speculators":
        weights += 4 * exportable.target.vocab_size * exportable.target.hidden_size

    def write() -> None:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        _fill(part, spec, exportable, summary, layout)
        publish_directory(part, final)

    job.write_with_room(
        final,
        weights + _SMALL_BYTES,
        write,
        inodes_needed=_FILES,
        clean=lambda: shutil.rmtree(part, ignore_errors=True),
    )


def _fill(part: Path, spec: TrainingSpec, exportable: Exportable, summary: Summary, layout: DrafterLayout) -> None:
    drafter, mapping, target, layer_ids = (
        exportable.drafter,
        exportable.mapping,
        exportable.target,
        exportable.layer_ids,
    )
    if layout == "speculators":
        embedding = read_target_weights(Path(spec.target_model)).embedding
        files = write_speculators(
            part,
            drafter,
            mapping,
            target=target,
            layer_ids=layer_ids,
            verifier=spec.target_model,
            embedding=embedding,
        )
    else:
        files = write_checkpoint(part, drafter, mapping, target=target, layer_ids=layer_ids)
    manifest = Manifest(
        format="roost-drafter",
        version=1,
        fingerprint=spec.fingerprint,
        inputs={
            "store": artifact_ref("store", Path(spec.store)).manifest_sha256,
            "mapping": artifact_ref("mapping", Path(spec.mapping)).manifest_sha256,
            "target": spec.target_model,
        },
        producer=PRODUCER,
        created_at=time.time(),
        files=[],
        properties={"layer_ids": exportable.layer_ids, "summary": summary, "layout": layout},
    )
    write_manifest(part, manifest, files)
