"""An extraction as it is now: its job, what the job told, what lies in the store, and what is left out of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.agents.room import free_at
from remote.artifacts.hidden_states import FORMAT
from remote.artifacts.manifest import MANIFEST_NAME, read_manifest
from remote.artifacts.quarantine import Quarantined, count_reasons, read_quarantine
from remote.artifacts.store_journal import BEGUN, complete_shards
from remote.errors import NotFound, Precondition
from remote.jobs.store import JobStore
from remote.paths import resolve_path
from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.ids import is_job_id
from remote.protocol.jobs import Job
from remote.protocol.progress import ExtractionAdvanced, ExtractionPlanned, ProgressRecord, SampleQuarantined
from remote.protocol.reports import ExtractionReport
from remote.protocol.specs import ExtractionSpec, RunSpec, StoreImportSpec, StoreMergeSpec, StoreVerificationSpec

_WRITERS = (ExtractionSpec, StoreImportSpec, StoreMergeSpec)
_OF_A_STORE = (*_WRITERS, StoreVerificationSpec)
_PAGE_BYTES = MAX_LINE_BYTES // 2


def read_extraction(store: JobStore, name: str, *, skip: int = 0, limit: int) -> ExtractionReport:
    """The extraction that is called `name`: a job's id, its run's, or a store's directory; raises NotFound, or Precondition for a
    directory that holds something else.
    """
    jobs = store.list()
    directory = _directory(store, jobs, name)
    job = next((each for each in jobs if _written_by(store, each) == directory), None)
    is_finished = (directory / MANIFEST_NAME).is_file()
    if is_finished and (found := read_manifest(directory).format) != FORMAT:
        raise Precondition(
            f"{directory} holds a {found}, not hidden states", hint="`roost extraction plan` names a run's"
        )
    if job is None and not is_finished and not (directory / BEGUN).is_file():
        raise NotFound(
            f"there is no store at {directory}, and no job that writes one",
            hint="name a store's directory, such as runs/NAME/store, or the job or the run that writes it",
        )
    told = _Told(None, None) if job is None else _read_told(store, job.job_id)
    shards, left_out, free = complete_shards(directory), read_quarantine(directory), free_at(directory)
    shown = _page(left_out[skip : skip + limit])
    return ExtractionReport(
        store=str(directory),
        finished=is_finished,
        samples=sum(len(shard.sample_ids) for shard in shards),
        tokens=sum(shard.tokens for shard in shards),
        bytes=sum(shard.file.bytes for shard in shards),
        shards=len(shards),
        job=job,
        planned=told.planned,
        advanced=None if told.advanced is None else told.advanced[1],
        sampled_at=None if told.advanced is None else told.advanced[0],
        bytes_free=free.bytes,
        inodes_free=free.inodes,
        quarantined=len(left_out),
        reasons=count_reasons(left_out),
        quarantine=shown,
        omitted=max(0, len(left_out) - skip - len(shown)),
    )


def _directory(store: JobStore, jobs: Sequence[Job], name: str) -> Path:
    """The store that is meant. A job's name is one before it is a directory's."""
    named = next((job for job in jobs if job.job_id == name), None) if is_job_id(name) else None
    if named is None:
        return resolve_path(store.root, name)
    own = [named] if isinstance(named.spec, _OF_A_STORE) else [job for job in jobs if job.run_id == name]
    spec = next((job.spec for job in own if isinstance(job.spec, _OF_A_STORE)), None)
    if spec is None:
        why = (
            "its store was there, or it has not come to that"
            if isinstance(named.spec, RunSpec)
            else "it is another job"
        )
        raise NotFound(f"{name} has no extraction: {why}", hint="name the store's directory, such as runs/NAME/store")
    return resolve_path(store.root, spec.store)


def _written_by(store: JobStore, job: Job) -> Path | None:
    return resolve_path(store.root, job.spec.store) if isinstance(job.spec, _WRITERS) else None


class _Told(NamedTuple):
    """What a job said of its plan, and last of how far it is, with the moment."""

    planned: ExtractionPlanned | None
    advanced: tuple[float, ExtractionAdvanced] | None


def _read_told(store: JobStore, job_id: str) -> _Told:
    told, seen = _Told(None, None), 0
    while records := store.read_progress(job_id, seen):
        for record in records:
            told = _with(told, record)
        seen = records[-1].seq
    return told


def _with(told: _Told, record: ProgressRecord) -> _Told:
    match record.event:
        case ExtractionPlanned() as planned:
            return told._replace(planned=planned)
        case ExtractionAdvanced() as advanced:
            return told._replace(advanced=(record.at, advanced))
        case _:
            return told


def _page(entries: Sequence[Quarantined]) -> list[SampleQuarantined]:
    """As many as go into an answer."""
    shown: list[SampleQuarantined] = []
    room = _PAGE_BYTES
    for entry in entries:
        told = SampleQuarantined(sample_id=entry.sample_id, reason=entry.reason)
        room -= len(msgspec.json.encode(told))
        if room < 0:
            break
        shown.append(told)
    return shown
