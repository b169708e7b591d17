"""The report that a job left behind."""

from pathlib import Path
from typing import Literal

from remote.artifacts.manifest import artifact_ref, verify
from remote.errors import Precondition
from remote.jobs.store import JobStore
from remote.protocol.jobs import is_over
from remote.protocol.mappings import MappingCoverageSpec
from remote.protocol.specs import BenchmarkSpec, RunSpec, TuningSpec

Reporting = Literal["benchmark", "tuning", "run", "mapping_coverage"]
"""Agents whose jobs leave a report behind."""

_SPECS = {"benchmark": BenchmarkSpec, "tuning": TuningSpec, "run": RunSpec, "mapping_coverage": MappingCoverageSpec}
_KINDS = {"run": "verdict", "mapping_coverage": "coverage"}


def report_directory(store: JobStore, job_id: str, agent: Reporting) -> Path:
    """Where the report of `job_id`, a job of `agent`, lies as the job left it; that of a run is its verdict.

    Raises NotFound for a job that does not exist, and Precondition for one that is not of `agent`, that has no report (yet), or
    whose report is gone or another by now.
    """
    job = store.get(job_id)
    if not isinstance(job.spec, _SPECS[agent]):
        raise Precondition(f"{job_id} is no {agent} but a {job.agent} job", next_command="roost jobs")
    kind, what = _KINDS.get(agent, agent), "verdict" if agent == "run" else "report"
    outputs = [] if job.result is None else [output for output in job.result.outputs if output.kind == kind]
    if not outputs and is_over(job.state):
        raise Precondition(f"{job_id} ended without a {what}", next_command=f"roost status {job_id}")
    if not outputs:
        raise Precondition(f"{job_id} has no {what} yet", hint="wait for it", next_command=f"roost wait {job_id}")
    directory = Path(outputs[0].path)
    if not directory.exists():
        raise Precondition(f"the {what} of {job_id} is gone: there is no {directory}", hint=f"start the {agent} again")
    if artifact_ref(kind, directory) != outputs[0]:
        raise Precondition(
            f"the {what} of {job_id} was replaced by that of a later job",
            hint="ask for that one",
            next_command="roost jobs",
        )
    verify(directory)
    return directory
