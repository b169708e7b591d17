"""A store into the files of another trainer, and the other way round."""

import shutil
from pathlib import Path

from remote.agents.extraction import layouts
from remote.agents.extraction.export_note import NOTE_NAME, norm_of, read_note, require_as_noted, write_note
from remote.agents.extraction.filling import Filling
from remote.agents.harness import JobContext, main
from remote.artifacts.atomic import publish_directory
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.hidden_states import StoreProperties, StoreReader
from remote.artifacts.manifest import FileEntry, artifact_ref, fingerprint_of, hash_file, read_manifest
from remote.artifacts.quarantine import Quarantined
from remote.artifacts.store_check import check_hash, fault_of_states
from remote.artifacts.store_plan import Planned
from remote.errors import Precondition
from remote.paths import resolve_path
from remote.protocol.jobs import JobResult
from remote.protocol.progress import FilesCopied, Note
from remote.protocol.run import ExtractionConfig
from remote.protocol.specs import StoreExportSpec, StoreImportSpec

_SMALL_BYTES = 64 << 10


def export(spec: StoreExportSpec, job: JobContext) -> JobResult:
    """Write every sample into `spec.directory`, which takes its name when all are there.

    Raises Precondition, also for a store that is not any more what it was: each file is hashed before it is read.
    """
    store, directory = (
        StoreReader(resolve_path(job.root, spec.store)),
        resolve_path(job.root, spec.directory),
    )
    properties = store.properties
    if directory.exists():
        raise Precondition(f"{directory} is there already", hint="name another directory, or move it away")
    if spec.layout == "specforge" and properties.final_norm != "post_norm":
        raise Precondition("SpecForge wants final states after the norm, the store has those before it")
    takes_off = spec.layout == "speculators" and properties.final_norm == "post_norm"
    weight = layouts.final_norm_weight(Path(properties.model)) if takes_off else None
    part = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    job.write_with_room(part, _SMALL_BYTES, lambda: part.mkdir(parents=True, exist_ok=True))
    total, done = sum(sample.nbytes for sample in store), 0
    unread = {entry.name: entry for entry in read_manifest(store.directory).files}
    for name in [name for name in unread if not name.startswith("shard-")]:
        _require_sound(store, unread.pop(name))
    for number, sample in enumerate(store):
        job.check_stop()
        if (shard := store.shard_of(number)) in unread:
            _require_sound(store, unread.pop(shard))
        if spec.layout == "specforge":
            path = layouts.specforge_path(part, number)
            job.write_with_room(
                path,
                sample.nbytes + _SMALL_BYTES,
                lambda path=path, sample=sample: layouts.write_specforge(path, sample, properties.dtype),
                clean=lambda path=path: path.unlink(missing_ok=True),
            )
        else:
            path = layouts.speculators_path(part, number)
            job.write_with_room(
                path,
                sample.nbytes + _SMALL_BYTES,
                lambda path=path, sample=sample: layouts.write_speculators(path, sample, properties.dtype, weight),
            )
        done += sample.nbytes
        job.tell(FilesCopied(bytes_done=done, bytes_total=total))
    if spec.layout == "speculators":
        lines = b"".join(map(layouts.mask_line, store))
        job.write_with_room(part, len(lines), lambda: (part / layouts.SAMPLES_NAME).write_bytes(lines))
    job.write_with_room(part, _SMALL_BYTES, lambda: write_note(part, spec.layout, store.directory, properties))
    publish_directory(part, directory)
    return JobResult(outputs=[], summary={"samples": len(store), "bytes": total, "directory": str(directory)})


def _require_sound(store: StoreReader, entry: FileEntry) -> None:
    for fault in check_hash(store.directory, entry):
        raise Precondition(
            f"the store {store.directory} is damaged: {fault}",
            hint="`roost extraction verify` says what else is; make it again from its inputs",
        )


def import_files(spec: StoreImportSpec, job: JobContext) -> JobResult:
    """Make a store of another trainer's files; samples that cannot be believed are quarantined.

    Raises Precondition, also where the note of an export beside them says that they are something else.
    """
    source, model = resolve_path(job.root, spec.directory), resolve_path(job.root, spec.target_model)
    note = read_note(source)
    found = list(layouts.read_all(source, spec.layout, len(spec.layer_ids)))
    template = ChatTemplate(model, spec.chat_template_kwargs)
    first = found[0]
    properties = StoreProperties(
        model=str(model),
        layer_ids=spec.layer_ids,
        hidden_size=first.sample.final_hidden_states.shape[1],
        dtype=first.dtype,
        final_norm=norm_of(spec.layout),
        target_config_sha256=hash_file(model / "config.json"),
        tokenizer_sha256=template.tokenizer_sha256,
        chat_template_sha256=template.sha256,
        engine=spec.layout,
        engine_version="imported",
    )
    if note is None:
        text = f"no {NOTE_NAME} beside the files: that they are of these layers of {model} is taken on trust"
        job.tell(Note(level="warning", text=text))
    else:
        require_as_noted(note, spec.layout, len(found), properties)
    samples = [each.sample for each in found]
    plan = [Planned(sample.sample_id, sample.input_ids, sample.loss_mask) for sample in samples]
    store = resolve_path(job.root, spec.store)
    filling = Filling(job, store, properties, plan, ExtractionConfig(layer_ids=spec.layer_ids))
    total = sum(sample.nbytes for sample in samples)
    done = 0
    while filling.writer.next_sample is not None:
        job.check_stop()
        sample = samples[filling.writer.position]
        fault = fault_of_states(sample.hidden_states, sample.final_hidden_states)
        if fault is None:
            filling.keep(sample)
        else:
            filling.leave_out([Quarantined(sample_id=sample.sample_id, reason=f"its file has {fault}")])
        done += sample.nbytes
        job.tell(FilesCopied(bytes_done=done, bytes_total=total))
    inputs = {"source": str(source), "target": str(model)}
    filling.finish(fingerprint_of({"artifact": "import", "layout": spec.layout, **inputs}), inputs)
    summary = {
        "samples": len(filling.writer.written),
        "bytes": total,
        "quarantined": filling.quarantined,
        "vouched_for": note is not None,
    }
    return JobResult(outputs=[artifact_ref("store", store)], summary={**summary})


def work(spec: StoreExportSpec | StoreImportSpec, job: JobContext) -> JobResult:
    """Convert as `spec` says."""
    return export(spec, job) if isinstance(spec, StoreExportSpec) else import_files(spec, job)


if __name__ == "__main__":
    main((StoreExportSpec, StoreImportSpec), work)
