"""A host that is only played: what was recorded there, and what it streams."""

import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from protocol_samples import (
    APPROVAL,
    BENCHMARK_REPORT,
    COVERAGE_REPORT,
    EVENTS,
    EXTRACTION_PLAN,
    EXTRACTION_REPORT,
    GPU_TOPOLOGY,
    JOB,
    JOURNAL_ENTRY,
    MAPPING_INSPECTION,
    MAPPING_REPORT,
    NOTIFICATION,
    REPLIES,
    RUN_PLAN,
    SERVER_PLAN,
    TELEMETRY_SAMPLE,
    TRAINING_PLAN,
    TUNING_PLAN,
    TUNING_REPORT,
    VERDICT,
)

from console.config.hosts import HostConfig
from console.errors import HostError
from console.state.link import Closed, Up
from remote.protocol.approvals import (
    ApprovalList,
    ApprovalReply,
    AskApproval,
    DecideApproval,
    GetApproval,
    ListApprovals,
)
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import Heartbeat
from remote.protocol.jobs import Job
from remote.protocol.journal import JournalPage, ReadJournal
from remote.protocol.notifications import (
    GetNotification,
    ListNotifications,
    NotificationList,
    NotificationReply,
    TryWebhook,
)
from remote.protocol.progress import ExtractionPlanned, ProgressRecord, ServerReady
from remote.protocol.requests import (
    GetJob,
    InspectMapping,
    JobList,
    JobReply,
    ListJobs,
    PlanExtraction,
    PlanRun,
    PlanServer,
    PlanTraining,
    PlanTuning,
    ProgressPage,
    ReadBenchmark,
    ReadCoverage,
    ReadExtraction,
    ReadPlan,
    ReadProgress,
    ReadTelemetry,
    ReadTuning,
    ReadVerdict,
    ResolveExtraction,
    StartJob,
    ValidateMapping,
    Welcome,
)
from remote.protocol.storage import ReadStorage, StorageReport
from remote.protocol.telemetry import ReadHistory, ReadTopology, TelemetryHistory, TelemetrySample

NOW = 1_796_000_000.0
PAGE = 7


def sample_at(at: float, **changes) -> TelemetrySample:
    return msgspec.structs.replace(
        TELEMETRY_SAMPLE, sampled_at=at, period_s=1.0, diagnoses=[], gpu_events=[], **changes
    )


class PlayedHost:
    """A session that answers from `recorded`; keeps what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.recorded: list[TelemetrySample] = []
        self.streamed: list = [Heartbeat(at=NOW)]
        self.asked: list = []
        self.started_as = JOB.state
        self.server_events: list = [next(event for event in EVENTS if isinstance(event, ServerReady))]
        self.started_result = JOB.result
        self.run_plan = msgspec.structs.replace(RUN_PLAN, problems=[])
        self.journal = [JOURNAL_ENTRY]
        self.approval = APPROVAL
        self.planned = next(event for event in EVENTS if isinstance(event, ExtractionPlanned))
        self.mapping_report = MAPPING_REPORT
        self.other_mappings = {}
        self.extraction_plan = EXTRACTION_PLAN
        self.left_out = EXTRACTION_REPORT.quarantine
        self.training_plan = TRAINING_PLAN
        self.server_plan = SERVER_PLAN
        self.tuning_plan, self.tuning_report = TUNING_PLAN, TUNING_REPORT
        self.state = Up(
            since=0.0, latency_s=0.01, welcome=next(reply for reply in REPLIES if isinstance(reply, Welcome))
        )
        self.host = HostConfig(name="lab", address="10.0.0.1")
        self.actor = "mcp:planner"

    async def call(self, request, *, timeout_s: float = 30.0):  # noqa: C901 - one for each request
        self.asked.append(request)
        match request:
            case ReadTelemetry():
                return self.recorded[-1]
            case ListJobs():
                return JobList(jobs=self.jobs)
            case GetJob(job_id=job_id):
                if (found := next((job for job in self.jobs if job.job_id == job_id), None)) is None:
                    raise HostError(ErrorInfo(code=ErrorCode.NOT_FOUND, message=f"there is no job {job_id}"))
                return JobReply(job=found)
            case ReadVerdict():
                return VERDICT
            case StartJob(job_id=job_id, spec=spec):
                self.jobs.append(
                    msgspec.structs.replace(
                        JOB, job_id=job_id, spec=spec, state=self.started_as, result=self.started_result
                    )
                )
                return JobReply(job=self.jobs[-1])
            case ReadProgress(after_seq=seen):
                records = [
                    ProgressRecord(seq=seq, at=NOW, event=event) for seq, event in enumerate(self.server_events, 1)
                ]
                return ProgressPage(job_id="serving", records=records[seen:])
            case PlanRun() | ReadPlan():
                return self.run_plan
            case PlanTuning():
                return self.tuning_plan
            case ReadTuning():
                return self.tuning_report
            case PlanExtraction():
                return self.planned
            case ResolveExtraction():
                return self.extraction_plan
            case ReadExtraction(skip=skip, limit=limit):
                page = self.left_out[skip : skip + min(limit, 2)]
                counts = {"quarantined": len(self.left_out), "omitted": len(self.left_out) - skip - len(page)}
                return msgspec.structs.replace(EXTRACTION_REPORT, quarantine=page, **counts)
            case PlanTraining():
                return self.training_plan
            case PlanServer():
                return self.server_plan
            case ReadBenchmark():
                return BENCHMARK_REPORT
            case ValidateMapping(path=path):
                return self.other_mappings.get(path, self.mapping_report)
            case InspectMapping():
                return MAPPING_INSPECTION
            case ReadCoverage():
                return COVERAGE_REPORT
            case ReadJournal(limit=limit, skip=skip):
                left = self.journal[skip:]
                return JournalPage(entries=left[: min(limit, 2)], omitted=len(left) - len(left[: min(limit, 2)]))
            case AskApproval() | GetApproval() | DecideApproval():
                return ApprovalReply(approval=self.approval)
            case ListApprovals():
                return ApprovalList(approvals=[self.approval])
            case ListNotifications():
                return NotificationList(records=[NOTIFICATION], has_webhook=True)
            case TryWebhook() | GetNotification():
                return NotificationReply(record=NOTIFICATION)
            case ReadStorage():
                return next(reply for reply in REPLIES if isinstance(reply, StorageReport))
            case ReadTopology():
                return GPU_TOPOLOGY
            case ReadHistory(since=since, until=until, step_s=step):
                return self._page(since, NOW + 1 if until is None else until, step)

    def _page(self, since: float, until: float, step_s: float) -> TelemetryHistory:
        steps: dict[int, list[TelemetrySample]] = {}
        for sample in self.recorded:
            if since <= sample.sampled_at < until:
                steps.setdefault(int(sample.sampled_at // step_s), []).append(sample)
        found = [
            msgspec.structs.replace(same[-1], gpu_events=[event for each in same for event in each.gpu_events])
            for same in steps.values()
        ]
        rest = found[PAGE].sampled_at if len(found) > PAGE else None
        return TelemetryHistory(samples=found[:PAGE], next_since=rest)

    async def watch(self, watch) -> None:
        self.asked.append(watch)

    async def events(self):
        for event in self.streamed:
            yield event
        yield Closed(error=None)
