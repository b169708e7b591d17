"""The tuning as a job: round by round it serves with each trial's settings, measures, and keeps the faster half."""

import shutil
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.agents.harness import JobContext, main
from remote.artifacts.atomic import exchange, publish_directory, write_atomic
from remote.artifacts.manifest import Manifest, artifact_ref, write_manifest
from remote.errors import Precondition, RoostError, WorkFailed
from remote.jobs.store import JobStore
from remote.paths import resolve_path
from remote.pipeline.alone import alone_in
from remote.pipeline.children import Children
from remote.pipeline.fingerprints import combine
from remote.pipeline.layout import lay_out
from remote.pipeline.trials import Kept, Launch, Trials
from remote.pipeline.tuning import (
    REPORT_NAME,
    Comparison,
    Standing,
    benchmark_of,
    choose,
    compare,
    draw_trials,
    oddity_of,
    plan_rounds,
    plan_trials,
    tuning_of,
    who_goes_on,
)
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.jobs import ArtifactRef, JobResult
from remote.protocol.progress import Note, TrialAdvanced, TrialState
from remote.protocol.specs import TuningSpec
from remote.protocol.tuning import (
    Settings,
    TrialMeasurement,
    TrialOutcome,
    TrialReport,
    TuningReport,
    TuningRound,
)

_FORMAT = "roost-tuning"
_PRODUCER = "roost tuning 1"
_SMALL_BYTES = 64 << 10
_FILES = 4


class End(NamedTuple):
    """How a trial ended, and why."""

    outcome: TrialOutcome
    reason: str


def work(spec: TuningSpec, job: JobContext) -> JobResult:
    """Find the fastest settings; the result is the report, whatever it says."""
    release = Path(__file__).resolve().parents[2]
    return conduct(spec, job, JobStore(job.root, release, sys.executable))


def conduct(spec: TuningSpec, job: JobContext, store: JobStore) -> JobResult:
    """Tune with the jobs of `store`; whatever happens, every job of the tuning has ended when this returns.

    Raises Precondition before anything is launched, WorkFailed where the run file's own settings fail, Stopped.
    """
    children = Children(store, job.job_id, job.stop_requested, job.room)
    tuner = Tuner(spec, job, children, python=store.python)
    with alone_in(tuner.directory, store.root, what="tuning"):
        try:
            report = tuner.tune()
        finally:
            troubles = children.stop_all("the tuning is over")
            for trouble in troubles:
                job.tell(Note(level="warning", text=trouble))
        if troubles:
            raise WorkFailed(f"the tuning is done, but jobs of it live on: {'; '.join(troubles)}")
        return JobResult(outputs=[publish(report, tuner.directory, job)], summary=_summary(report))


class Tuner:
    """One tuning under way; what is measured is kept in its directory, and not measured again when it is started again."""

    def __init__(self, spec: TuningSpec, job: JobContext, children: Children, *, python: str) -> None:
        self._run = spec.run
        self._config = tuning_of(spec.run)
        self._job = job
        self._children = children
        self.directory = lay_out(spec.run, job.root).tuning
        self._bench = Trials(
            children,
            job,
            self.directory / "measurements",
            resolve_path(job.root, spec.run.data.evaluation),
            python=python,
        )
        self._trials = draw_trials(spec.run, job.root)
        self._plans = plan_trials(self._trials, spec.run, job.root, python)
        if self._plans[0].problem is not None:
            raise Precondition(f"the server of the run file cannot be launched: {self._plans[0].problem}")
        self._going = [plan.number for plan in self._plans[1:] if plan.problem is None]
        if not self._going:
            raise Precondition("no combination of tuning.sweep can be launched", hint="`roost server tune --dry-run`")
        self._rounds = plan_rounds(len(self._going), self._config)
        self._launched = 0
        self._measured: dict[int, list[TrialMeasurement]] = {}
        self._ends: dict[int, End] = {}

    def tune(self) -> TuningReport:
        """All rounds. Raises WorkFailed where the run file's own settings cannot be measured; Stopped."""
        finalists: list[tuple[int, Comparison]] = []
        base: list[Kept] = []
        for number, round_ in enumerate(self._rounds, 1):
            base, found = self._play(number, round_)
            if not self._going:
                break
            finalists = [(trial, found[trial]) for trial in self._going]
        drift = self._drift(base)
        winner, reason = choose(finalists, drift or 0.0) if self._going else (None, "every trial failed")
        return self._report(base[0].report, winner, drift, reason)

    def _play(self, number: int, round_: TuningRound) -> tuple[list[Kept], dict[int, Comparison]]:
        """One round: the present settings first, and in the last round once more at its end."""
        last = number == len(self._rounds)
        base = [self._measure(Launch(0, number), round_, base=None)]
        measured = {trial: self._try(Launch(trial, number), round_, base[0]) for trial in self._going}
        if last and any(measured.values()):
            base.append(self._measure(Launch(0, number, again=True), round_, base=base[0]))
        levels = [one.level for one in base]
        whole = msgspec.structs.replace(levels[0], requests=[each for level in levels for each in level.requests])
        self._note(0, number, round_, base[0], compare([whole], whole, self._config.objective))
        found: dict[int, Comparison] = {}
        standings: list[Standing] = []
        for trial, kept in measured.items():
            if kept is None:
                continue
            found[trial] = compare(levels, kept.level, self._config.objective)
            self._note(trial, number, round_, kept, found[trial])
            standings.append(Standing(trial, found[trial].speedup, oddity_of(base[0].level, kept.level)))
        self._going = who_goes_on(standings, len(standings) if last else self._rounds[number].trials)
        for one in standings:
            if one.number not in self._going:
                slow = f"not among the fastest of round {number}"
                self._ends[one.number] = End("dropped", one.fault or slow)
        return base, found

    def _try(self, launch: Launch, round_: TuningRound, base: Kept) -> Kept | None:
        """A trial's measurement; None for one that fails, which is an answer too."""
        try:
            return self._measure(launch, round_, base=base)
        except RoostError as error:
            self._ends[launch.trial] = End("failed", error.info.message)
            self._tell(launch, "failed", reason=error.info.message)
            return None

    def _measure(self, launch: Launch, round_: TuningRound, *, base: Kept | None) -> Kept:
        """Raises WorkFailed, Precondition, Stopped."""
        spec = self._trials[launch.trial].spec
        assert spec is not None
        self._launched += 1
        settings, state = benchmark_of(self._config, round_.prompts), "known"
        kept = self._bench.known(launch, spec, settings)
        if kept is None:
            kept, state = self._bench.measure(launch, spec, settings, lambda now: self._tell(launch, now)), "measured"
        found = compare([(base or kept).level], kept.level, self._config.objective)
        speedup = None if launch.trial == 0 else found.speedup
        self._tell(launch, state, tokens_per_s=found.tokens_per_s, speedup=speedup)
        return kept

    def _note(self, trial: int, number: int, round_: TuningRound, kept: Kept, found: Comparison) -> None:
        level = kept.level
        measurement = TrialMeasurement(
            round=number,
            prompts=round_.prompts,
            tokens_per_s=found.tokens_per_s,
            speedup=found.speedup,
            speedup_interval=found.interval,
            acceptance_length=level.acceptance_length,
            odd=level.odd,
            requests=len(level.requests),
            server_job_id=kept.report.spec.server_job_id,
            benchmark_job_id=kept.benchmark_job_id,
        )
        self._measured.setdefault(trial, []).append(measurement)

    def _drift(self, base: list[Kept]) -> float | None:
        """How far the present settings are from themselves; None where no last round was played."""
        if len(base) < 2:
            return None
        return abs(compare([base[0].level], base[1].level, self._config.objective).speedup - 1)

    def _tell(
        self,
        launch: Launch,
        state: TrialState,
        *,
        tokens_per_s: float | None = None,
        speedup: float | None = None,
        reason: str = "",
    ) -> None:
        self._job.tell(
            TrialAdvanced(
                launch=self._launched,
                launches=sum(one.trials + 1 for one in self._rounds) + 1,
                round=launch.round,
                rounds=len(self._rounds),
                settings=in_words(self._plans[launch.trial].settings),
                state=state,
                tokens_per_s=tokens_per_s,
                speedup=speedup,
                reason=reason,
            )
        )

    def _report(self, measured: BenchmarkReport, winner: int | None, drift: float | None, reason: str) -> TuningReport:
        rest = (plan.number for plan in self._plans[1:] if plan.number not in self._going)
        order = [0, *self._going, *rest]
        return TuningReport(
            run=self._run,
            measured_at=time.time(),
            host_name=socket.gethostname(),
            devices=measured.devices,
            engine=measured.engine,
            engine_version=measured.engine_version,
            prompts_sha256=self._bench.prompts_sha256,
            trials=[self._report_trial(number) for number in order],
            winner=winner,
            drift=drift,
            reason=reason,
        )

    def _report_trial(self, number: int) -> TrialReport:
        plan = self._plans[number]
        end = self._ends.get(number, End("finalist" if number else "present", ""))
        if plan.problem is not None:
            end = End("refused", plan.problem)
        return TrialReport(
            number=number,
            settings=plan.settings,
            command=plan.command,
            environment=plan.environment,
            outcome=end.outcome,
            measurements=self._measured.get(number, []),
            reason=end.reason,
            recaptures=plan.recaptures,
        )


def publish(report: TuningReport, directory: Path, job: JobContext) -> ArtifactRef:
    """Write the report below the directory of the run's tunings; it takes the place of an earlier one as a whole."""
    final = directory / "report"
    part = directory / "report.part"
    content = msgspec.json.format(msgspec.json.encode(report), indent=1)
    prompts = report.prompts_sha256

    def write() -> ArtifactRef:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write_atomic(part / REPORT_NAME, content)
        manifest = Manifest(
            format=_FORMAT,
            version=1,
            fingerprint=combine("tuning", report.run, prompts),
            inputs={"prompts": prompts, "target": report.run.target.model},
            producer=_PRODUCER,
            created_at=report.measured_at,
            files=[],
            properties={"winner": report.winner},
        )
        write_manifest(part, manifest, [REPORT_NAME])
        if final.exists():
            exchange(part, final)
            shutil.rmtree(part)
        else:
            publish_directory(part, final)
        return artifact_ref("tuning", final)

    return job.write_with_room(
        final,
        len(content) + _SMALL_BYTES,
        write,
        inodes_needed=_FILES,
        clean=lambda: shutil.rmtree(part, ignore_errors=True),
    )


def in_words(settings: Settings) -> str:
    """`speculation.num_steps=3, …`; nothing changed is what the run file has."""
    return ", ".join(f"{key}={value}" for key, value in settings.items()) or "as the run file has it"


def _summary(report: TuningReport) -> dict[str, str | int | float | bool | None]:
    won = next((trial for trial in report.trials if trial.number == report.winner), None)
    return {
        "winner": None if won is None else in_words(won.settings),
        "speedup": None if won is None else won.measurements[-1].speedup,
        "trials": len(report.trials),
        "reason": report.reason,
    }


if __name__ == "__main__":
    main(TuningSpec, work)
