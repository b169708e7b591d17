"""What a console may ask, and the reply that each request gets."""

from remote.protocol.approvals import (
    ApprovalList,
    ApprovalReply,
    AskApproval,
    DecideApproval,
    GetApproval,
    ListApprovals,
    RecordRefusal,
)
from remote.protocol.base import Message
from remote.protocol.benchmark import BenchmarkReport
from remote.protocol.ids import JobId
from remote.protocol.jobs import Job
from remote.protocol.journal import JournalPage, ReadJournal
from remote.protocol.mappings import CoverageReport
from remote.protocol.notifications import (
    GetNotification,
    ListNotifications,
    NotificationList,
    NotificationReply,
    TryWebhook,
)
from remote.protocol.orders import StartJob, StopJob
from remote.protocol.progress import ExtractionPlanned, ProgressRecord
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
from remote.protocol.run import NotNegative, Positive
from remote.protocol.secrets import ListSecrets, RemoveSecret, SecretList, SetSecret
from remote.protocol.specs import Capture
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


class Hello(Message, frozen=True, kw_only=True):
    """First request on every link; another protocol version is refused."""

    protocol: int
    actor: str


class Ping(Message, frozen=True, kw_only=True):
    """Nothing but a round trip -> `Done`."""


class ListJobs(Message, frozen=True, kw_only=True):
    """All jobs, newest first, after leaving out the newest `skip` -> `JobList`."""

    skip: int = 0


class GetJob(Message, frozen=True, kw_only=True):
    """One job -> `JobReply`."""

    job_id: JobId


class ReadLog(Message, frozen=True, kw_only=True):
    """Log bytes from an absolute offset -> `LogPage`; `offset` None means the last `limit` bytes."""

    job_id: JobId
    offset: int | None
    limit: int


class ReadProgress(Message, frozen=True, kw_only=True):
    """Progress records after `after_seq` -> `ProgressPage`."""

    job_id: JobId
    after_seq: int = 0
    limit: int = 1000


class Watch(Message, frozen=True, kw_only=True):
    """Replace what this link streams -> `Done`. Logs start at the given offsets, progress after the given numbers."""

    telemetry: bool = False
    jobs: bool = False
    logs: dict[str, int] = {}
    progress: dict[str, int] = {}


class ReadTelemetry(Message, frozen=True, kw_only=True):
    """One fresh reading -> `TelemetrySample`."""


class PlanRun(Message, frozen=True, kw_only=True):
    """Resolve a run file (TOML text, which may name a preset) on this host -> `RunPlan`."""

    document: str
    overrides: dict[str, str] = {}


class ReadPlan(Message, frozen=True, kw_only=True):
    """A plan that was shown before, by its fingerprint -> `RunPlan` as it was then."""

    fingerprint: str


class PlanExtraction(Message, frozen=True, kw_only=True):
    """Tokenize a run's conversations on this host and say what its extraction would write -> `ExtractionPlanned`."""

    document: str
    overrides: dict[str, str] = {}


class ResolveExtraction(Message, frozen=True, kw_only=True):
    """Resolve the extraction of a run file as a job of its own, with the server at `url` that serves `model` and captures as `capture`
    says -> `ExtractionPlan`.

    With `part` (number, of how many) every so-many-th conversation; it goes into `store`, else into the run's directory.
    """

    document: str
    url: str
    model: str
    capture: Capture
    overrides: dict[str, str] = {}
    part: tuple[Positive, Positive] | None = None
    store: str | None = None


class ReadExtraction(Message, frozen=True, kw_only=True):
    """An extraction by its job, its run or its store's directory, with at most `limit` of the samples that are left out after the
    first `skip` -> `ExtractionReport`.
    """

    name: str
    skip: NotNegative = 0
    limit: NotNegative = 1000


class PlanServer(Message, frozen=True, kw_only=True):
    """Resolve the server that a run file's evaluation measures, with or without the run's drafter, or the one that captures hidden
    states -> `ServerPlan`.
    """

    document: str
    overrides: dict[str, str] = {}
    drafter: bool = False
    capture: bool = False


class PlanTraining(Message, frozen=True, kw_only=True):
    """Resolve the training of a run file by itself -> `TrainingPlan`. `store`, `mapping` and `output` stand in for the run's own."""

    document: str
    overrides: dict[str, str] = {}
    store: str | None = None
    mapping: str | None = None
    output: str | None = None


class ReadVerdict(Message, frozen=True, kw_only=True):
    """The verdict of a run -> `VerdictReport`."""

    job_id: JobId


class PlanTuning(Message, frozen=True, kw_only=True):
    """Resolve the tuning of a run file on this host -> `TuningPlan`."""

    document: str
    overrides: dict[str, str] = {}


class ReadTuning(Message, frozen=True, kw_only=True):
    """What a tuning found -> `TuningReport`."""

    job_id: JobId


class ReadBenchmark(Message, frozen=True, kw_only=True):
    """The figures of a benchmark -> `BenchmarkReport`."""

    job_id: JobId


class ValidateMapping(Message, frozen=True, kw_only=True):
    """Validate a mapping on the host, compared with the target, the drafter and the store that are named -> `MappingReport`."""

    path: str
    target_model: str | None = None
    drafter: str | None = None
    store: str | None = None


class InspectMapping(Message, frozen=True, kw_only=True):
    """Everything that is known of a mapping on the host -> `MappingInspection`."""

    path: str
    target_model: str | None = None


class ReadCoverage(Message, frozen=True, kw_only=True):
    """What a job said of a mapping's coverage -> `CoverageReport`."""

    job_id: JobId


Request = (
    Hello
    | Ping
    | ListJobs
    | GetJob
    | StartJob
    | StopJob
    | ReadLog
    | ReadProgress
    | Watch
    | ReadTelemetry
    | ReadHistory
    | ReadTopology
    | PlanRun
    | ReadPlan
    | PlanServer
    | PlanExtraction
    | ResolveExtraction
    | ReadExtraction
    | PlanTraining
    | ReadVerdict
    | ReadBenchmark
    | PlanTuning
    | ReadTuning
    | ValidateMapping
    | InspectMapping
    | ReadCoverage
    | SetSecret
    | RemoveSecret
    | ListSecrets
    | ReadStorage
    | PlanReclaim
    | ReadJournal
    | MoveToTrash
    | RestoreFromTrash
    | AskApproval
    | GetApproval
    | ListApprovals
    | DecideApproval
    | RecordRefusal
    | ListNotifications
    | GetNotification
    | TryWebhook
)


class Package(Message, frozen=True, kw_only=True):
    """A Python package that the host's interpreter can or cannot import; version None = missing."""

    name: str
    version: str | None


class Welcome(Message, frozen=True, kw_only=True):
    """Who answers: protocol, release hash, host name, root directory, interpreter, incarnation and what is installed."""

    protocol: int
    release: str
    host_name: str
    user: str
    root: str
    python: str
    python_version: str
    incarnation: str
    boot_at: float
    packages: list[Package]


class JobList(Message, frozen=True, kw_only=True):
    """Jobs, newest first; `omitted` older ones did not fit into a line: ask again with `skip`."""

    jobs: list[Job]
    omitted: int = 0


class JobReply(Message, frozen=True, kw_only=True):
    """One job as it is now."""

    job: Job


class LogPage(Message, frozen=True, kw_only=True):
    """Raw log bytes `[offset, offset + len(data))` of a log whose readable range is `[start, size)`."""

    job_id: JobId
    offset: int
    data: bytes
    start: int
    size: int


class ProgressPage(Message, frozen=True, kw_only=True):
    """Progress records in order."""

    job_id: JobId
    records: list[ProgressRecord]


class Done(Message, frozen=True, kw_only=True):
    """Carried out; nothing to tell."""


Reply = (
    Welcome
    | JobList
    | JobReply
    | LogPage
    | ProgressPage
    | Done
    | TelemetrySample
    | TelemetryHistory
    | GpuTopology
    | RunPlan
    | ExtractionPlanned
    | ExtractionPlan
    | ExtractionReport
    | ServerPlan
    | TrainingPlan
    | VerdictReport
    | BenchmarkReport
    | TuningPlan
    | TuningReport
    | MappingReport
    | MappingInspection
    | CoverageReport
    | SecretList
    | StorageReport
    | ReclaimPlan
    | TrashList
    | JournalPage
    | ApprovalReply
    | ApprovalList
    | NotificationReply
    | NotificationList
)
