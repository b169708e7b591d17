"""The report of a coverage job, read as what it was when it was written."""

import msgspec

from remote.jobs.store import JobStore
from remote.pipeline.finished import report_directory
from remote.protocol.mappings import CoverageReport

_REPORT = "coverage.json"


def read_coverage(store: JobStore, job_id: str) -> CoverageReport:
    """The report of the coverage job `job_id`; raises as `report_directory` does."""
    return msgspec.json.decode(
        (report_directory(store, job_id, "mapping_coverage") / _REPORT).read_bytes(), type=CoverageReport
    )
