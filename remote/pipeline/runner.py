"""The run as a job: checks everything, carries the stages out, judges, and leaves no job behind."""

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from remote.agents.harness import JobContext, main
from remote.artifacts.manifest import artifact_ref
from remote.errors import Conflict, Precondition
from remote.jobs import locks
from remote.jobs.store import JobStore
from remote.pipeline.children import Children
from remote.pipeline.execution import Execution
from remote.pipeline.fingerprints import fingerprints
from remote.pipeline.plan import Found, free_bytes, look, plan_config
from remote.pipeline.problems import survey
from remote.pipeline.reporting import Reporter
from remote.pipeline.reuse import Valid
from remote.pipeline.stages import Blueprint
from remote.protocol.jobs import JobResult
from remote.protocol.reports import VerdictReport
from remote.protocol.run import RunConfig
from remote.protocol.specs import RunSpec

_LOCK_TIMEOUT_S = 1.0


def work(spec: RunSpec, job: JobContext) -> JobResult:
    """Carry out the run that `spec` describes; the result is its verdict, whatever it says."""
    release = Path(__file__).resolve().parents[2]
    return conduct(spec.run, job, JobStore(job.root, release, sys.executable))


def conduct(run: RunConfig, job: JobContext, store: JobStore) -> JobResult:
    """Carry out `run` with the jobs of `store`; raises RoostError, after every job of the run has ended."""
    began, reporter = time.monotonic(), Reporter(job.tell)
    children = Children(store, job.job_id, job.stop_requested)
    with _alone_in(run, store):
        try:
            blueprint, found = _preflight(run, store, reporter)
            execution = Execution(blueprint, found, children, reporter)
            execution.carry_out()
            verdict = _judge(blueprint, found, reporter)
        finally:
            for trouble in children.stop_all(f"its run {job.job_id} has ended"):
                reporter.note(trouble)
        return JobResult(
            outputs=[*execution.outputs(), artifact_ref("verdict", blueprint.layout.verdict)],
            summary=_summary(verdict, time.monotonic() - began),
        )


def _preflight(run: RunConfig, store: JobStore, reporter: Reporter) -> tuple[Blueprint, Found]:
    with reporter.at_work("preflight") as stage:
        plan, blueprint = draw_plan(run, root=store.root, python=store.python)
        if plan.problems:
            raise Precondition(
                f"run {run.name} cannot begin: {' '.join(plan.problems)}",
                hint="Mend what is named, or change the run file, then start again.",
            )
        directory = blueprint.layout.directory
        directory.mkdir(parents=True, exist_ok=True)
        _make_known(directory, store.root)
        stage.say("reads what is there already")
        found = look(blueprint, thorough=True)
        need, free = plan.bytes_needed / 2**30, plan.bytes_free / 2**30
        stage.say(f"{directory}: needs about {need:.2f} GiB of {free:.1f} GiB")
    return blueprint, found


def _make_known(directory: Path, root: Path) -> None:
    """A link below ROOT to a run that lies elsewhere, so that readings of the host include its disk."""
    runs = root / "runs"
    runs.mkdir(exist_ok=True)
    if not directory.is_relative_to(runs) and not os.path.lexists(runs / directory.name):
        (runs / directory.name).symlink_to(directory)


@contextmanager
def _alone_in(run: RunConfig, store: JobStore) -> Iterator[None]:
    """No other run writes to the same directory meanwhile; raises Conflict."""
    directory = lay_out(run, store.root).directory
    name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:32]
    try:
        lock = locks.take(locks.lock_directory(store.root) / f"run-{name}.lock", _LOCK_TIMEOUT_S)
    except locks.LockTimeout as error:
        raise Conflict(
            f"another run is at work in {directory}",
            hint="Wait for it, stop it, or give this run a directory of its own.",
            next_command="roost jobs",
        ) from error
    try:
        yield
    finally:
        os.close(lock)
