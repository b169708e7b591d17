"""What each request does; everything here may block, and runs in a thread."""

from pathlib import Path

import msgspec

from remote.errors import UsageError
from remote.jobs.journal import Change
from remote.jobs.store import JobStore
from remote.link.changes import describe_change
from remote.link.clerk import Clerk
from remote.link.host import describe_host
from remote.link.telemetry import TelemetrySource
from remote.paths import resolve_path
from remote.protocol.approvals import (
    Approval,
    ApprovalList,
    ApprovalReply,
    AskApproval,
    DecideApproval,
    GetApproval,
    ListApprovals,
    RecordRefusal,
)
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.jobs import Job
from remote.protocol.journal import ReadJournal
from remote.protocol.mappings import CoverageReport
from remote.protocol.notifications import (
    GetNotification,
    ListNotifications,
    NotificationList,
    NotificationReply,
    TryWebhook,
)
from remote.protocol.progress import ExtractionPlanned
from remote.protocol.reports import (
    ExtractionPlan,
    ExtractionReport,
    MappingInspection,
    MappingReport,
    RunPlan,
    ServerPlan,
    TrainingPlan,
    VerdictReport,
)
from remote.protocol.requests import (
    Done,
    GetJob,
    Hello,
    InspectMapping,
    JobList,
    JobReply,
    ListJobs,
    Ping,
    PlanExtraction,
    PlanRun,
    PlanServer,
    PlanTraining,
    PlanTuning,
    ProgressPage,
    ReadBenchmark,
    ReadCoverage,
    ReadExtraction,
    ReadLog,
    ReadPlan,
    ReadProgress,
    ReadTelemetry,
    ReadTuning,
    ReadVerdict,
    Reply,
    Request,
    ResolveExtraction,
    StartJob,
    StopJob,
    ValidateMapping,
    Watch,
)
from remote.protocol.secrets import ListSecrets, RemoveSecret, SecretList, SetSecret
from remote.protocol.specs import (
    BenchmarkSpec,
    EvaluationSpec,
    ExtractionSpec,
    RunSpec,
    ServerSpec,
    TrainingSpec,
    TuningSpec,
)
from remote.protocol.storage import (
    MoveToTrash,
    PlanReclaim,
    ReadStorage,
    ReclaimPlan,
    RestoreFromTrash,
    StorageReport,
    TrashList,
)
from remote.protocol.telemetry import GpuTopology, ReadHistory, ReadTopology, TelemetryHistory, TelemetrySample
from remote.protocol.tuning import TuningPlan, TuningReport

_WORTH_RECORDING = (RunSpec, TuningSpec, ServerSpec, ExtractionSpec, TrainingSpec, EvaluationSpec, BenchmarkSpec)
"""What works for long, and is recorded whether or not anybody watches."""

_LIST_BYTES = MAX_LINE_BYTES * 7 // 8


class Desk:
    """Answers requests in the name of one console's `actor`."""

    def __init__(self, store: JobStore, telemetry: TelemetrySource, actor: str) -> None:
        self._store = store
        self._telemetry = telemetry
        self.actor = actor

    def answer(self, request: Request, *, approval: str | None = None) -> Reply:
        """The reply to `request`, which is put on record when it changes something, with the `approval` that allowed it; raises RoostError."""
        change = self._describe(request)
        if change is None:
            return self._answer(request)
        if isinstance(request, RecordRefusal):
            self._store.journal.put_refusal(change, request.code, request.message)
            return Done()
        with self._store.journal.recording(msgspec.structs.replace(change, approval=approval or change.approval)):
            return self._answer(request)

    def _describe(self, request: Request) -> Change | None:
        return describe_change(request, self.actor, lambda text: self._store.secrets.redactor().redact_text(text))

    def _answer(self, request: Request) -> Reply:  # noqa: C901, PLR0911 - one for each desk
        match request:
            case Hello():
                return describe_host(self._store)
            case Ping() | RecordRefusal():
                return Done()
            case Watch():
                raise UsageError("a watch is not a question: the link takes it in its turn")
            case ReadTelemetry() | ReadHistory() | ReadTopology():
                return self._answer_about_readings(request)
            case SetSecret() | RemoveSecret() | ListSecrets():
                return self._answer_about_secrets(request)
            case PlanServer() | ReadBenchmark() | PlanTuning() | ReadTuning():
                self._store.secrets.redactor()
                return self._answer_about_servers(request)
            case PlanRun() | ReadPlan() | PlanExtraction() | ResolveExtraction() | PlanTraining() | ReadVerdict():
                self._store.secrets.redactor()
                return self._answer_about_work(request)
            case ValidateMapping() | InspectMapping() | ReadCoverage():
                self._store.secrets.redactor()
                return self._answer_about_mappings(request)
            case ReadStorage() | PlanReclaim() | MoveToTrash() | RestoreFromTrash() | ReadExtraction():
                return self._answer_about_storage(request)
            case ListNotifications() | GetNotification() | TryWebhook():
                return self._answer_about_notifications(request)
            case AskApproval() | GetApproval() | ListApprovals() | DecideApproval():
                return self._answer_about_approvals(request)
            case _:
                self._store.secrets.redactor()
                return self._answer_about_jobs(request)

    def _answer_about_work(
        self, request: PlanRun | ReadPlan | PlanExtraction | ResolveExtraction | PlanTraining | ReadVerdict
    ) -> RunPlan | ExtractionPlanned | ExtractionPlan | TrainingPlan | VerdictReport:
        """Imports what it needs when it is asked: a link opens in a tenth of the time without numpy."""
        store = self._store
        match request:
            case PlanRun(document=document, overrides=overrides):
                from remote.pipeline.applying import keep_plan  # noqa: PLC0415
                from remote.pipeline.foretelling import foretell, past_runs  # noqa: PLC0415
                from remote.pipeline.plan import plan_run  # noqa: PLC0415

                plan = plan_run(document, overrides, root=store.root, python=store.python)
                plan = foretell(plan, past_runs(store))
                keep_plan(store.root, plan)
                return plan
            case ReadPlan(fingerprint=fingerprint):
                from remote.pipeline.applying import read_plan  # noqa: PLC0415

                return read_plan(store.root, fingerprint)
            case PlanExtraction(document=document, overrides=overrides):
                from remote.pipeline.extraction_plan import plan_extraction  # noqa: PLC0415

                return plan_extraction(document, overrides, root=store.root)
            case ResolveExtraction():
                from remote.pipeline.extraction_plan import resolve_extraction  # noqa: PLC0415

                return resolve_extraction(request, root=store.root)
            case PlanTraining():
                from remote.pipeline.training_plan import plan_training  # noqa: PLC0415

                return plan_training(request, root=store.root, python=store.python)
            case ReadVerdict(job_id=job_id):
                from remote.pipeline.verdict import read_verdict  # noqa: PLC0415

                return read_verdict(store, job_id)

    def _answer_about_mappings(
        self, request: ValidateMapping | InspectMapping | ReadCoverage
    ) -> MappingReport | MappingInspection | CoverageReport:
        """Imports what it needs when it is asked, as above."""
        store = self._store
        match request:
            case ValidateMapping(path=path, target_model=target_model, drafter=drafter, store=compared):
                from remote.artifacts.mapping_checks import Companions, validate_against  # noqa: PLC0415

                named = (self._place(one) for one in (target_model, drafter, compared))
                return validate_against(resolve_path(store.root, path), Companions(*named))
            case InspectMapping(path=path, target_model=target_model):
                from remote.storage.mapping_inspection import inspect_mapping  # noqa: PLC0415

                return inspect_mapping(store, resolve_path(store.root, path), self._place(target_model))
            case ReadCoverage(job_id=job_id):
                from remote.pipeline.coverage import read_coverage  # noqa: PLC0415

                return read_coverage(store, job_id)

    def _place(self, path: str | None) -> Path | None:
        return None if path is None else resolve_path(self._store.root, path)

    def _answer_about_servers(
        self, request: PlanServer | ReadBenchmark | PlanTuning | ReadTuning
    ) -> ServerPlan | BenchmarkReport | TuningPlan | TuningReport:
        """Imports what it needs when it is asked, as above."""
        store = self._store
        match request:
            case PlanServer(document=document, overrides=overrides, drafter=drafter, capture=capture):
                from remote.pipeline.serving import plan_server  # noqa: PLC0415

                return plan_server(
                    document, overrides, drafter=drafter, capture=capture, root=store.root, python=store.python
                )
            case ReadBenchmark(job_id=job_id):
                from remote.pipeline.benchmark import read_benchmark  # noqa: PLC0415

                return read_benchmark(store, job_id)
            case PlanTuning(document=document, overrides=overrides):
                from remote.pipeline.tuning import plan_tuning  # noqa: PLC0415

                return plan_tuning(document, overrides, root=store.root, python=store.python)
            case ReadTuning(job_id=job_id):
                from remote.pipeline.tuning import read_tuning  # noqa: PLC0415

                return read_tuning(store, job_id)

    def _answer_about_storage(
        self, request: ReadStorage | PlanReclaim | MoveToTrash | RestoreFromTrash | ReadExtraction
    ) -> StorageReport | ReclaimPlan | TrashList | ExtractionReport:
        """Imports what it needs when it is asked, as above."""
        from remote.storage import reclaim, usage  # noqa: PLC0415

        store = self._store
        match request:
            case ReadStorage():
                return usage.read_storage(store)
            case PlanReclaim(paths=paths):
                return reclaim.plan_reclaim(store, paths)
            case MoveToTrash(paths=paths, token=token, op_id=op_id):
                return reclaim.move_to_trash(store, paths, token, actor=self.actor, op_id=op_id)
            case RestoreFromTrash(name=name, op_id=op_id):
                return reclaim.restore(store, name, actor=self.actor, op_id=op_id)
            case ReadExtraction(name=name, skip=skip, limit=limit):
                from remote.storage.extraction_report import read_extraction  # noqa: PLC0415

                return read_extraction(store, name, skip=skip, limit=limit)

    def _answer_about_approvals(
        self, request: AskApproval | GetApproval | ListApprovals | DecideApproval
    ) -> ApprovalReply | ApprovalList:
        clerk = Clerk(self._store, self._carry_out)
        match request:
            case AskApproval(request=asked, why=why):
                described = self._describe(asked)
                assert described is not None, "only changes can be asked for"
                return ApprovalReply(approval=clerk.ask(asked, why, described))
            case GetApproval(approval_id=approval_id):
                return ApprovalReply(approval=clerk.get(approval_id))
            case ListApprovals():
                return clerk.list()
            case DecideApproval():
                return ApprovalReply(approval=clerk.decide(request, self.actor))

    def _carry_out(self, approval: Approval) -> Reply:
        """In the name of whoever asked."""
        desk = Desk(self._store, self._telemetry, approval.asked_by)
        return desk.answer(approval.request, approval=approval.approval_id)

    def _answer_about_readings(
        self, request: ReadTelemetry | ReadHistory | ReadTopology
    ) -> TelemetrySample | TelemetryHistory | GpuTopology:
        match request:
            case ReadTelemetry():
                return self._telemetry.read()
            case ReadHistory(since=since, until=until, step_s=step_s):
                return self._telemetry.history(since, until, step_s)
            case ReadTopology():
                return self._telemetry.topology()

    def _answer_about_notifications(
        self, request: ListNotifications | GetNotification | TryWebhook
    ) -> NotificationReply | NotificationList:
        """Imports what it needs when it is asked, as above."""
        from remote.notifications import desk  # noqa: PLC0415

        match request:
            case ListNotifications():
                return desk.list_notifications(self._store.root)
            case GetNotification(notification_id=notification_id):
                return desk.get_notification(self._store.root, notification_id)
            case TryWebhook(op_id=op_id):
                reply = desk.try_webhook(self._store.root, op_id)
                self._telemetry.want()  # the recorder posts
                return reply

    def _answer_about_secrets(self, request: SetSecret | RemoveSecret | ListSecrets) -> SecretList:
        secrets = self._store.secrets
        match request:
            case SetSecret(name=name, value=value, op_id=op_id):
                return secrets.set(name, value, actor=self.actor, op_id=op_id)
            case RemoveSecret(name=name, op_id=op_id):
                return secrets.remove(name, op_id=op_id)
            case ListSecrets():
                return secrets.list()

    def _answer_about_jobs(  # noqa: PLR0911 - one for each request
        self, request: ListJobs | GetJob | StartJob | StopJob | ReadLog | ReadProgress | ReadJournal
    ) -> JobList | JobReply | Reply:
        store = self._store
        match request:
            case ListJobs(skip=skip):
                return _fit(store.list()[max(0, skip) :])
            case ReadJournal(since=since, limit=limit, skip=skip):
                return store.journal.read(since=since, limit=limit, skip=skip)
            case GetJob(job_id=job_id):
                return JobReply(job=store.get(job_id))
            case StartJob(job_id=job_id, spec=spec, op_id=op_id):
                if isinstance(spec, RunSpec) and spec.plan is not None and not store.is_there(job_id):
                    from remote.pipeline.applying import require_unchanged  # noqa: PLC0415

                    require_unchanged(store.root, store.python, spec.run, spec.plan)
                job = store.start(job_id, spec, actor=self.actor, op_id=op_id)
                if isinstance(spec, _WORTH_RECORDING):
                    self._telemetry.want()
                return JobReply(job=job)
            case StopJob(job_id=job_id, op_id=op_id, reason=reason, expected_revision=revision):
                return JobReply(
                    job=store.stop(job_id, actor=self.actor, op_id=op_id, reason=reason, expected_revision=revision)
                )
            case ReadLog(job_id=job_id, offset=offset, limit=limit):
                return store.read_log(job_id, offset, limit)
            case ReadProgress(job_id=job_id, after_seq=after_seq, limit=limit):
                return ProgressPage(job_id=job_id, records=store.read_progress(job_id, after_seq, limit))


def _fit(jobs: list[Job]) -> JobList:
    """As many of the newest jobs as go into one line."""
    encoder = msgspec.json.Encoder()
    room = _LIST_BYTES
    for count, job in enumerate(jobs):
        room -= len(encoder.encode(job)) + 1
        if room < 0:
            return JobList(jobs=jobs[:count], omitted=len(jobs) - count)
    return JobList(jobs=jobs)
