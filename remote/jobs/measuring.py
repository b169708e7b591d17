"""What one job does at a time: measure a server (one that a run works with by that run alone), train in a directory, and write a store."""

from collections.abc import Iterable
from pathlib import Path

from remote.errors import Precondition
from remote.paths import resolve_path
from remote.protocol.ids import JobId
from remote.protocol.jobs import Job, is_over
from remote.protocol.specs import BenchmarkSpec, ExtractionSpec, StoreImportSpec, StoreMergeSpec, TrainingSpec

StoreWork = ExtractionSpec | StoreImportSpec | StoreMergeSpec
"""What writes a store."""


def require_undisturbed(jobs: Iterable[Job], spec: BenchmarkSpec, *, job_id: JobId, run_id: JobId | None) -> None:
    """That `job_id`, which belongs to `run_id`, may measure what `spec` names; raises Precondition where it would disturb."""
    for job in jobs:
        if job.job_id == spec.server_job_id and job.run_id not in (None, run_id):
            raise Precondition(
                f"{job.job_id} works for {job.run_id}, whose own figures a benchmark would spoil",
                hint="Start a server of the same run file by itself: `roost server start FILE`.",
            )
        if (
            isinstance(job.spec, BenchmarkSpec)
            and job.spec.server_job_id == spec.server_job_id
            and job.job_id != job_id
            and not is_over(job.state)
        ):
            raise Precondition(
                f"{job.job_id} measures {spec.server_job_id} already; each would measure the other's load",
                next_command=f"roost wait {job.job_id}",
            )


def require_alone(jobs: Iterable[Job], spec: TrainingSpec, *, job_id: JobId) -> None:
    """That no other job trains where `spec` does; raises Precondition."""
    for job in jobs:
        if (
            isinstance(job.spec, TrainingSpec)
            and job.spec.checkpoints == spec.checkpoints
            and job.job_id != job_id
            and not is_over(job.state)
        ):
            raise Precondition(
                f"{job.job_id} trains in {spec.checkpoints} already",
                hint="Wait for it, stop it, or name another directory by --output.",
                next_command=f"roost wait {job.job_id}",
            )


def require_sole_writer(jobs: Iterable[Job], spec: StoreWork, *, job_id: JobId, root: Path) -> None:
    """That no other job writes the store that `spec` does; raises Precondition."""
    store = resolve_path(root, spec.store)
    for job in jobs:
        if (
            isinstance(job.spec, StoreWork)
            and resolve_path(root, job.spec.store) == store
            and job.job_id != job_id
            and not is_over(job.state)
        ):
            raise Precondition(
                f"{job.job_id} writes {store} already",
                hint="Wait for it, stop it, or name another directory by --output.",
                next_command=f"roost wait {job.job_id}",
            )
