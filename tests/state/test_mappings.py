"""Which mappings jobs know of, and what a copy means."""

import msgspec
import pytest

from console.state.mappings import absolute, copy_consequence, coverage_job, mapping_paths, why_not_copied
from remote.protocol.jobs import ArtifactRef, Finished, Job, JobResult
from remote.protocol.mappings import MappingCoverageSpec, TokenSource
from remote.protocol.reports import Finding, MappedFile, MappingReport

SAME = MappingReport(
    path="/r/m",
    valid=True,
    findings=[],
    files=[MappedFile(name="d2t.npy", bytes=1, sha256="aa")],
    draft_vocab_size=4,
    target_vocab_size=9,
    coverage=None,
    provenance="roost",
)
DONE = Finished(started_at=1.0, ended_at=2.0, outcome="succeeded", exit_code=0, signal=None, reason="")


def job(job_id: str, **values) -> Job:
    given = {"agent": "x", "state": DONE, "revision": 1, "created_at": 0.0, "created_by": "a", "command": []}
    return Job(job_id=job_id, **{**given, **values})


def test_every_mapping_that_jobs_made_or_measured_is_known_once() -> None:
    made = JobResult(outputs=[ArtifactRef(kind="mapping", path="/r/runs/a/mapping", manifest_sha256="b")], summary={})
    spec = MappingCoverageSpec(sources=[TokenSource(path="s")], mapping="runs/a/mapping/")
    other = MappingCoverageSpec(sources=[TokenSource(path="s")], mapping="/elsewhere/m")
    best = MappingCoverageSpec(sources=[TokenSource(path="s")], draft_vocab_size=4)
    jobs = [job("c", spec=spec), job("a", result=made), job("d", spec=other), job("e", spec=best), job("f")]
    assert mapping_paths(jobs, "/r") == ["/r/runs/a/mapping", "/elsewhere/m"]
    found = coverage_job(jobs, "/r/runs/a/mapping", "/r")
    assert found is not None
    assert found.job_id == "c"
    assert (
        coverage_job([job("c", spec=spec, state=msgspec.structs.replace(DONE, outcome="failed"))], "/r/m", "/r") is None
    )


def test_a_path_is_below_the_root_unless_it_says_otherwise() -> None:
    assert absolute("runs/a/", "/r/") == "/r/runs/a"
    assert absolute("/x/a", "/r") == "/x/a"


@pytest.mark.parametrize(
    ("there", "replaces", "is_needed"),
    [
        (None, False, True),
        (SAME, False, False),
        (msgspec.structs.replace(SAME, provenance="foreign"), False, True),
        (msgspec.structs.replace(SAME, files=[MappedFile(name="d2t.npy", bytes=1, sha256="bb")]), True, True),
        (msgspec.structs.replace(SAME, valid=False), True, True),
    ],
)
def test_what_lies_there_decides_what_a_copy_does(there, replaces, is_needed) -> None:
    found = copy_consequence(SAME, there)
    assert (found.replaces, found.is_needed) == (replaces, is_needed)


def test_what_must_not_be_used_is_not_copied() -> None:
    finding = Finding(code="absolute_ids", severity="error", message="m", fix="f")
    assert why_not_copied(SAME) is None
    assert "absolute_ids" in (why_not_copied(msgspec.structs.replace(SAME, valid=False, findings=[finding])) or "")
    assert "convert" in (why_not_copied(msgspec.structs.replace(SAME, layout="specforge")) or "")
