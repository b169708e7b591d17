"""The run as a job: checks everything, carries the stages out, judges, and leaves no job behind."""

import os
import sys
import time
from pathlib import Path

from remote.agents.harness import JobContext, main
from remote.agents.room import Room
from remote.artifacts.manifest import artifact_ref
from remote.errors import Precondition, WorkFailed
from remote.jobs.difference import few_words
from remote.jobs.store import JobStore
from remote.pipeline.alone import alone_in
from remote.pipeline.applying import read_plan, what_changed
from remote.pipeline.children import Children
from remote.pipeline.execution import Execution
from remote.pipeline.layout import lay_out
from remote.pipeline.plan import Found, draw_plan, look
from remote.pipeline.reporting import Reporter
from remote.pipeline.stages import Blueprint
from remote.protocol.jobs import JobResult
from remote.protocol.reports import VerdictReport
from remote.protocol.run import RunConfig
from remote.protocol.specs import RunSpec
from remote.telemetry.figures import bytes_text


def work(spec: RunSpec, job: JobContext) -> JobResult:
    """Carry out the run that `spec` describes; the result is its verdict, whatever it says."""
    release = Path(__file__).resolve().parents[2]
    return conduct(spec.run, job, JobStore(job.root, release, sys.executable), shown=spec.plan)


def conduct(run: RunConfig, job: JobContext, store: JobStore, *, shown: str | None = None) -> JobResult:
    """Carry out `run` with the jobs of `store`; whatever happens, every job of the run has ended when this returns.

    With the fingerprint of the plan that was `shown` only exactly so.

    Raises Precondition before anything is touched, WorkFailed when a stage fails, Stopped when the job is asked to stop.
    """
    began, reporter = time.monotonic(), Reporter(job.tell)
    children = Children(store, job.job_id, job.stop_requested, job.room)
    with alone_in(lay_out(run, store.root).directory, store.root, what="run"):
        blueprint, found = _preflight(run, store, reporter, job.room, shown)
        execution = Execution(blueprint, found, children, reporter, job.room)
        try:
            verdict = execution.carry_out()
        finally:
            troubles = children.stop_all("the run is over")
            for trouble in troubles:
                reporter.warn(trouble)
        if troubles:
            raise WorkFailed(f"the run is done, but jobs of it live on: {'; '.join(troubles)}")
        outputs = [artifact_ref(kind, directory) for kind, directory in blueprint.layout.artifacts()]
        return JobResult(outputs=outputs, summary=_summarize(verdict, time.monotonic() - began))


def _preflight(
    run: RunConfig, store: JobStore, reporter: Reporter, room: Room, shown: str | None
) -> tuple[Blueprint, Found]:
    with reporter.at_work("preflight") as stage:
        plan, blueprint = draw_plan(run, root=store.root, python=store.python)
        if plan.problems:
            raise Precondition(
                f"run {run.name} cannot begin: {' '.join(plan.problems)}",
                hint="Mend what is named, or change the run file, then start again.",
            )
        if shown is not None and plan.fingerprint != shown:
            changed = few_words(what_changed(read_plan(store.root, shown), plan))
            raise Precondition(
                f"the world changed since the plan was shown: {changed}", hint="Plan again, look, then decide."
            )
        for planned in plan.stages:
            if planned.stage != "preflight":
                reporter.expect(planned.stage, planned.bytes_needed)
        directory = blueprint.layout.directory
        room.write(directory, None, lambda: directory.mkdir(parents=True, exist_ok=True))
        room.write(store.root, None, lambda: _make_known(directory, store.root))
        stage.say("reads what is there already")
        found = look(blueprint, thorough=True)
        stage.say(f"needs about {bytes_text(plan.bytes_needed)} of {bytes_text(plan.bytes_free)} free")
    return blueprint, found


def _make_known(directory: Path, root: Path) -> None:
    """A link below ROOT to a run that lies elsewhere, so that readings of the host include its disk."""
    link = root / "runs" / directory.name
    link.parent.mkdir(exist_ok=True)
    if not directory.is_relative_to(link.parent) and not os.path.lexists(link):
        link.symlink_to(directory)


def _summarize(verdict: VerdictReport, seconds: float) -> dict[str, str | int | float | bool | None]:
    return {
        "decision": verdict.decision,
        "speedup": verdict.speedup,
        "baseline_tokens_per_s": verdict.baseline_tokens_per_s,
        "drafter_tokens_per_s": verdict.drafter_tokens_per_s,
        "acceptance_length": verdict.acceptance_length,
        "coverage": verdict.coverage,
        "seconds": seconds,
    }


if __name__ == "__main__":
    main(RunSpec, work)
