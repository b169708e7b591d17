"""What a host says of an extraction: named by its job, its run or its store, at work or over."""

import sys
from pathlib import Path

import msgspec
import pytest

from remote.artifacts.quarantine import QUARANTINE, Quarantined
from remote.artifacts.store_writer import StoreWriter
from remote.errors import NotFound, Precondition
from remote.jobs.launch import LaunchPlan
from remote.jobs.store import JobStore
from remote.protocol.codec import encode_line
from remote.protocol.jobs import Finished
from remote.protocol.progress import ExtractionAdvanced, ExtractionPlanned, ProgressRecord
from remote.protocol.run import ExtractionConfig
from remote.protocol.specs import Capture, ExtractionSpec, RunSpec, Spec
from remote.storage.extraction_report import read_extraction
from tests.artifacts.test_hidden_states import plan_of, properties, sample, write_all
from tests.jobs.workshop import RELEASE, Workshop
from tests.storage.conftest import DONE, SLEEP, run_config

PLANNED = ExtractionPlanned(
    samples=4,
    tokens=20,
    loss_tokens=9,
    shards=2,
    bytes_total=900,
    bytes_needed=900,
    inodes_needed=8,
    bytes_free=1 << 40,
    inodes_free=None,
    unfit=0,
    sample_id="s0",
    sample_text="",
)
TOLD = [
    ExtractionAdvanced(samples_done=1, samples_total=4, tokens_done=5, bytes_written=0, tokens_per_s=1.0),
    PLANNED,
    ExtractionAdvanced(samples_done=2, samples_total=3, tokens_done=10, bytes_written=300, tokens_per_s=2.5),
]


def telling(events: list) -> str:
    """A program that tells these events and ends well."""
    lines = [encode_line(ProgressRecord(seq=seq, at=100.0 + seq, event=event)) for seq, event in enumerate(events, 1)]
    return f"open('progress.jsonl', 'wb').write({b''.join(lines)!r}); {DONE}"


def plan_jobs(spec: Spec) -> LaunchPlan:
    program = telling(TOLD)
    if isinstance(spec, RunSpec):
        program = SLEEP if spec.run.name == "busy" else DONE
    agent = "run" if isinstance(spec, RunSpec) else "extraction"
    return LaunchPlan(agent=agent, argv=[sys.executable, "-S", "-c", program], stop_grace_s=2.0)


@pytest.fixture
def store(workshop: Workshop) -> JobStore:
    return JobStore(workshop.root, RELEASE, sys.executable, plan=plan_jobs)


def extraction(store: str) -> ExtractionSpec:
    return ExtractionSpec(
        url="http://127.0.0.1:1",
        capture=Capture(layer_ids=[1, 2, 3], spool_directory="spool"),
        target_model="m",
        conversations="c.jsonl",
        store=store,
        extraction=ExtractionConfig(layer_ids=[1, 2, 3]),
        max_length=9,
        fingerprint="f",
    )


def start(workshop: Workshop, store: JobStore, job_id: str, spec: Spec, run_id: str | None = None) -> None:
    store.start(job_id, spec, actor="ann", op_id=f"start-{job_id}", run_id=run_id)
    workshop.until(job_id, lambda job: isinstance(job.state, Finished))


def begin_store(directory: Path, *, until: int | None = None) -> StoreWriter:
    """Four samples of five tokens, two a shard, of which the second is quarantined."""
    samples = [sample(number) for number in range(4)]
    writer = StoreWriter(directory, properties(), plan_of(samples), 900)
    write_all(writer, samples, {1}, until=until)
    return writer


def test_a_job_its_run_and_its_store_name_the_same_extraction(workshop: Workshop, store: JobStore) -> None:
    place = workshop.root / "runs/busy/store"
    begin_store(place, until=3)
    store.start("run-busy", RunSpec(run=run_config("busy")), actor="ann", op_id="start-run")
    start(workshop, store, "run-busy-extraction", extraction(str(place)), run_id="run-busy")
    by_job, by_run, by_path = (
        read_extraction(store, name, limit=9) for name in ("run-busy-extraction", "run-busy", "runs/busy/store")
    )
    assert by_job == by_run == by_path
    assert by_job.job is not None
    assert by_job.job.job_id == "run-busy-extraction"
    assert (by_job.planned, by_job.advanced, by_job.sampled_at) == (PLANNED, TOLD[2], 103.0)
    assert (by_job.finished, by_job.samples, by_job.tokens, by_job.shards) == (False, 1, 5, 1)
    assert by_job.bytes == (place / "shard-00000.safetensors").stat().st_size
    assert [entry.sample_id for entry in by_job.quarantine] == ["s1"]
    assert [(reason.reason, reason.samples) for reason in by_job.reasons] == [("unfit", 1)]


def test_an_extraction_that_has_not_opened_its_store_is_told_of(workshop: Workshop, store: JobStore) -> None:
    start(workshop, store, "extraction-1", extraction(str(workshop.root / "new")))
    found = read_extraction(store, "extraction-1", limit=9)
    assert (found.finished, found.samples, found.shards, found.quarantined) == (False, 0, 0, 0)
    assert found.planned == PLANNED
    assert found.bytes_free > 0


def test_a_finished_store_is_told_of_without_any_job(store: JobStore) -> None:
    writer = begin_store(store.root / "brought")
    writer.finish(fingerprint="f", inputs={})
    found = read_extraction(store, "brought", limit=9)
    assert (found.finished, found.job, found.samples, found.tokens, found.shards) == (True, None, 3, 15, 2)


def test_the_quarantine_comes_in_pages_and_a_line_that_is_being_written_is_passed_over(store: JobStore) -> None:
    begin_store(store.root / "s", until=1)
    lines = [msgspec.json.encode(Quarantined(sample_id=f"q{n}", reason="x" * 400)) + b"\n" for n in range(3000)]
    (store.root / "s" / QUARANTINE).write_bytes(b"".join(lines) + b'{"sample_id": "torn')
    seen = []
    while True:
        page = read_extraction(store, "s", skip=len(seen), limit=5000)
        seen += [entry.sample_id for entry in page.quarantine]
        assert page.omitted == 3000 - len(seen)
        encode_line(page)
        if not page.omitted:
            break
    assert seen == [f"q{n}" for n in range(3000)]
    assert len(read_extraction(store, "s", limit=7).quarantine) == 7
    assert read_extraction(store, "s", limit=0).quarantined == 3000


def test_what_is_no_extraction_is_said_to_be_none(workshop: Workshop, store: JobStore) -> None:
    with pytest.raises(NotFound, match="no store at"):
        read_extraction(store, "runs/none/store", limit=9)
    start(workshop, store, "run-old", RunSpec(run=run_config("old")))
    with pytest.raises(NotFound, match="no extraction"):
        read_extraction(store, "run-old", limit=9)
    (store.root / "drafter").mkdir()
    (store.root / "drafter/manifest.json").write_text(
        '{"format": "roost-drafter", "version": 1, "fingerprint": "f", "inputs": {}, "producer": "p", "created_at": 0, "files": [], "properties": {}}'
    )
    with pytest.raises(Precondition, match="roost-drafter"):
        read_extraction(store, "drafter", limit=9)
