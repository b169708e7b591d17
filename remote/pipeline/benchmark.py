"""The report of a benchmark, read as what it was when it was written."""

import msgspec

from remote.jobs.store import JobStore
from remote.pipeline.finished import report_directory
from remote.protocol.benchmark import BenchmarkReport

_REPORT = "report.json"


def read_benchmark(store: JobStore, job_id: str) -> BenchmarkReport:
    """The report of the benchmark `job_id`; raises as `report_directory` does."""
    return msgspec.json.decode(
        (report_directory(store, job_id, "benchmark") / _REPORT).read_bytes(), type=BenchmarkReport
    )
