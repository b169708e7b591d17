"""The report of a benchmark, read as what it was when it was written."""

from pathlib import Path

import msgspec

from remote.artifacts.manifest import verify
from remote.errors import NotFound, UsageError
from remote.jobs.store import JobStore
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.specs import BenchmarkSpec

_REPORT = "report.json"


def read_benchmark(store: JobStore, job_id: str) -> BenchmarkReport:
    """The report of the benchmark `job_id`; raises NotFound before there is one, UsageError for another job."""
    job = store.get(job_id)
    if not isinstance(job.spec, BenchmarkSpec):
        raise UsageError(f"{job_id} is no benchmark", hint="`roost jobs` lists them")
    if job.result is None or not job.result.outputs:
        raise NotFound(f"{job_id} has no report yet", hint="wait for it", next_command=f"roost wait {job_id}")
    directory = Path(job.result.outputs[0].path)
    verify(directory)
    return msgspec.json.decode((directory / _REPORT).read_bytes(), type=BenchmarkReport)
