"""From ended jobs and diagnoses to what people want to be told of, each once; pure."""

import hashlib
from collections.abc import Iterable, Iterator

from remote.protocol.jobs import Finished, Job, Lost
from remote.protocol.notifications import Notification
from remote.protocol.specs import (
    BenchmarkSpec,
    EvaluationSpec,
    ExtractionSpec,
    RunSpec,
    ServerSpec,
    TrainingSpec,
    TuningSpec,
)
from remote.protocol.telemetry import Diagnosis

_LONG_WORK = (RunSpec, TuningSpec, ServerSpec, ExtractionSpec, TrainingSpec, EvaluationSpec, BenchmarkSpec)
_QUIET_S = 6 * 3600.0
"""The same trouble with the same thing is told again after this at the earliest: disks and devices waver."""


class Finder:
    """Remembers what was told; work that ended before `since` is none of its business."""

    def __init__(self, told: Iterable[Notification], since: float, host_name: str) -> None:
        self._since = since
        self._host_name = host_name
        self._told: dict[str, float] = {}
        for notification in told:
            self._remember(notification)

    def advance(self, ended: Iterable[Job], diagnoses: Iterable[Diagnosis], now: float) -> list[Notification]:
        """What is new: `ended` are jobs that are over, `now` is in seconds since the epoch."""
        found = [*self._of_jobs(ended, now), *self._of_diagnoses(diagnoses, now)]
        for notification in found:
            self._remember(notification)
        return found

    def _remember(self, notification: Notification) -> None:
        for name in (notification.notification_id, _trouble_key(notification.kind, notification.subject)):
            self._told[name] = max(notification.at, self._told.get(name, notification.at))

    def _of_jobs(self, ended: Iterable[Job], now: float) -> Iterator[Notification]:
        for job in ended:
            name = f"job-{job.job_id}"
            if job.run_id is None and isinstance(job.spec, _LONG_WORK) and name not in self._told:
                yield from self._of_job(job, name, now)

    def _of_job(self, job: Job, name: str, now: float) -> Iterator[Notification]:
        def made(kind: str, text: str, decision: str | None = None) -> Notification:
            return Notification(
                notification_id=name,
                kind=kind,  # pyright: ignore[reportArgumentType] - of the three below
                at=now,
                host_name=self._host_name,
                subject=job.job_id,
                text=text,
                job_id=job.job_id,
                decision=decision,
            )

        match job.state:
            case Finished(ended_at=at) if at < self._since:
                pass
            case Finished(outcome="succeeded"):
                decision = None if job.result is None else job.result.summary.get("decision")
                if isinstance(decision, str):
                    yield made("verdict", _verdict_words(job, decision), decision)
                else:
                    yield made("finished", f"{job.job_id} is done")
            case Finished(outcome="failed", reason=reason):
                yield made("failed", f"{job.job_id} failed: {reason}")
            case Lost(since=at, reason=reason) if at >= self._since:
                yield made("failed", f"{job.job_id} is lost: {reason}")
            case _:
                pass  # whoever stopped it knows

    def _of_diagnoses(self, diagnoses: Iterable[Diagnosis], now: float) -> Iterator[Notification]:
        for found in diagnoses:
            match found:
                case Diagnosis(code="runway_short" | "inodes_short"):
                    kind = "disk_short"
                case Diagnosis(code="hardware", severity="error"):
                    kind = "gpu_fault"
                case _:
                    continue
            key = _trouble_key(kind, found.subject)
            if now - self._told.get(key, float("-inf")) < _QUIET_S:
                continue
            yield Notification(
                notification_id=f"{kind.replace('_', '-')}-{_digest(found.subject)}-{int(now)}",
                kind=kind,
                at=now,
                host_name=self._host_name,
                subject=found.subject,
                text=f"{found.summary}: {found.evidence}. {found.advice}",
                job_id=found.job_id,
            )


def _verdict_words(job: Job, decision: str) -> str:
    assert job.result is not None
    speedup, length = (job.result.summary.get(name) for name in ("speedup", "acceptance_length"))
    words = [f"{job.job_id}: {decision}"]
    if isinstance(speedup, float):
        words.append(f"{speedup:.2f}x the speed")
    if isinstance(length, float):
        words.append(f"acceptance length {length:.2f}")
    return ", ".join(words)


def _trouble_key(kind: str, subject: str) -> str:
    return f"{kind} {subject}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
