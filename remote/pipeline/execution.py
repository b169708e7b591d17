"""The sequence of a run: every stage in its turn, skipped where its artifact is valid already."""

import shutil
from pathlib import Path
from typing import NamedTuple

from remote.agents.room import Room
from remote.errors import Precondition, WorkFailed
from remote.pipeline import stages
from remote.pipeline.children import Children, Seen, failure
from remote.pipeline.given_store import ANOTHER_STORE
from remote.pipeline.judging import compare_arms, judge_run, read_judgement
from remote.pipeline.plan import Found, decide
from remote.pipeline.reporting import Reporter, RunningStage
from remote.pipeline.reuse import Absent, Outdated, Reuse, Valid, has_foreign_checkpoint, mark_begun, set_aside
from remote.pipeline.stages import Blueprint
from remote.protocol.progress import ServerReady, StageName
from remote.protocol.reports import VerdictReport
from remote.protocol.specs import Arm, ServerSpec, Spec

_VERDICT_BYTES = 256 << 10
_STORE_VALID = "the store is valid for the same inputs"


class Server(NamedTuple):
    """A server of this run that is ready."""

    job_id: str
    url: str
    pid: int


class Execution:
    """One run under way; `found` is what its directory held when it began, read in full.

    On an error the jobs that run are left to whoever called: `Children.stop_all` ends them.
    """

    def __init__(self, blueprint: Blueprint, found: Found, children: Children, reporter: Reporter, room: Room) -> None:
        self._plan = blueprint
        self._found = found
        self._children = children
        self._reporter = reporter
        self._room = room

    def carry_out(self) -> VerdictReport:
        """The stages from the first server to the verdict. Raises WorkFailed, or Stopped."""
        self._extract()
        self._build_vocabulary()
        self._train()
        self._evaluate()
        return self._judge()

    def _extract(self) -> None:
        layout = self._plan.layout
        if isinstance(self._found.store, Valid):
            self._reporter.skip("server", "no hidden states are to be captured")
            given = self._plan.run.extraction.source is not None
            self._reporter.skip("extraction", "the store that was given is whole" if given else _STORE_VALID)
            return
        if self._plan.run.extraction.source is not None:
            why = f": {self._found.store.reason}" if isinstance(self._found.store, Outdated) else ""
            raise Precondition(
                f"the store {layout.store} that the run was given cannot be learned from{why}",
                hint=ANOTHER_STORE,
            )
        if not self._found.store_to_go_on:
            self._make_room(self._found.store, layout.store)
        self._room.write(layout.store, None, lambda: mark_begun(layout.store, self._plan.fingerprints.extraction))
        shutil.rmtree(layout.spool, ignore_errors=True)
        server = self._serve("server", stages.capture_server(self._plan))
        self._run_stage("extraction", stages.extraction(self._plan, server.url))
        self._children.stop(server.job_id, "the hidden states are in the store")
        shutil.rmtree(layout.spool, ignore_errors=True)

    def _build_vocabulary(self) -> None:
        if isinstance(self._found.mapping, Valid):
            self._reporter.skip("vocabulary", "the mapping is valid for the same inputs")
            return
        self._make_room(self._found.mapping, self._plan.layout.mapping)
        self._run_stage("vocabulary", stages.vocabulary(self._plan))

    def _train(self) -> None:
        layout = self._plan.layout
        if isinstance(self._found.drafter, Valid):
            self._reporter.skip("training", "the drafter is valid for the same inputs")
            return
        self._make_room(self._found.drafter, layout.drafter)
        if has_foreign_checkpoint(layout.checkpoints, self._plan.fingerprints.training):
            self._set_aside(layout.checkpoints, "it holds checkpoints of another training")
        self._run_stage("training", stages.training(self._plan))

    def _evaluate(self) -> None:
        """The drafter's arm on its own server, then the baseline's, which compares its outputs with the drafter's."""
        found, layout = self._found, self._plan.layout
        measured = isinstance(found.drafter_report, Valid)
        if measured and isinstance(found.baseline_report, Valid):
            self._reporter.skip("serving", "the drafter has been measured already")
            self._reporter.skip("evaluation", "both reports are valid for the same inputs")
            return
        self._make_room(found.baseline_report, layout.baseline_report)
        server = None
        if measured:
            self._reporter.skip("serving", "the drafter has been measured already")
        else:
            self._make_room(found.drafter_report, layout.drafter_report)
            server = self._serve("serving", stages.evaluation_server(self._plan, "drafter"))
        with self._reporter.at_work("evaluation") as stage:
            if server is not None:
                self._measure(stage, "drafter", server, share=(0.0, 0.5))
            stage.say("starts the server without the drafter")
            baseline = self._start_server("baseline-server", stages.evaluation_server(self._plan, "baseline"), stage)
            self._measure(stage, "baseline", baseline, share=(0.5, 1.0))
            stage.say(compare_arms(self._plan))

    def _judge(self) -> VerdictReport:
        found = self._found.verdict
        if decide(self._found)["verdict"].action == "skip":
            self._reporter.skip("verdict", "the verdict is there for the same reports")
            return read_judgement(self._plan)
        self._make_room(found, self._plan.layout.verdict)
        with self._reporter.at_work("verdict") as stage:
            verdict = self._room.write(self._plan.layout.verdict, _VERDICT_BYTES, lambda: judge_run(self._plan))
            stage.say(f"{verdict.decision}: {'; '.join(verdict.reasons)}")
        return verdict

    def _measure(self, stage: RunningStage, arm: Arm, server: Server, *, share: tuple[float, float]) -> None:
        spec = stages.evaluation(self._plan, arm, server.url, server.pid)
        self._run_job(f"evaluation-{arm}", spec, stage, share=share)
        self._children.stop(server.job_id, f"the {arm} arm is measured")

    def _serve(self, name: StageName, spec: ServerSpec) -> Server:
        with self._reporter.at_work(name) as stage:
            return self._start_server(name, spec, stage)

    def _start_server(self, name: str, spec: ServerSpec, stage: RunningStage) -> Server:
        job_id = self._children.start(name, spec)
        stage.enter(job_id)
        ready: list[ServerReady] = []

        def see(seen: Seen) -> bool:
            stage.see(seen)
            ready.extend(event for event in seen.events if isinstance(event, ServerReady))
            return bool(ready)

        self._children.follow(job_id, see)
        if not ready:
            raise failure(job_id, "the server ended before it was ready")
        self._children.depend_on(job_id)
        return Server(job_id, ready[-1].url, ready[-1].pid)

    def _run_stage(self, name: StageName, spec: Spec) -> None:
        with self._reporter.at_work(name) as stage:
            self._run_job(name, spec, stage)

    def _run_job(self, name: str, spec: Spec, stage: RunningStage, *, share: tuple[float, float] = (0.0, 1.0)) -> None:
        job_id = self._children.start(name, spec)
        stage.enter(job_id, share)

        def see(seen: Seen) -> bool:
            stage.see(seen)
            return False

        self._children.follow(job_id, see)

    def _make_room(self, found: Reuse, directory: Path) -> None:
        match found:
            case Outdated(reason=reason):
                self._set_aside(directory, reason)
            case Absent(begun=True):
                self._set_aside(directory, "it has no manifest, so it was never finished")
            case Valid():
                self._set_aside(directory, "what it was made of is made anew")
            case Absent():
                pass

    def _set_aside(self, directory: Path, reason: str) -> None:
        try:
            place = set_aside(directory)
        except OSError as error:
            raise WorkFailed(f"{directory} could not be moved out of the way: {error}") from error
        self._reporter.note(f"{directory} is now {place.name}: {reason}")
