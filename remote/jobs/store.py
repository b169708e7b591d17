"""The jobs of a host: a directory each under ROOT, changed under a lock, read without one."""

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from remote.artifacts import reserve
from remote.errors import Conflict, NotFound, Precondition, RoostError, UsageError
from remote.jobs import covered_log, launch, locks, logs, outcome, plain_json, records, rescue, starter, view
from remote.jobs.approvals import Inbox
from remote.jobs.journal import Journal
from remote.jobs.launch import LaunchPlan
from remote.jobs.leases import Leases
from remote.jobs.measuring import StoreWork, require_alone, require_sole_writer, require_undisturbed
from remote.jobs.operations import Operations
from remote.jobs.records import ExitRecord, StopRecord
from remote.jobs.secret_store import SecretStore
from remote.jobs.starter import Starter
from remote.paths import resolve_path
from remote.protocol.ids import is_job_id
from remote.protocol.jobs import Finished, Foreign, Job, Lost, Orphaned, Quarantined, Queued, Stalled
from remote.protocol.progress import ProgressRecord
from remote.protocol.requests import LogPage
from remote.protocol.specs import BenchmarkSpec, Spec, TrainingSpec

_CHANGE_TIMEOUT_S = 120.0


class JobStore:
    """All jobs below one root; safe to use from several threads and processes at once."""

    def __init__(
        self,
        root: Path,
        release: Path,
        python: str,
        *,
        plan: Callable[[Spec], LaunchPlan] | None = None,
        leases: Leases | None = None,
    ) -> None:
        self.root = root.expanduser().resolve()
        self.release = release
        self.python = python
        self._jobs = self.root / "jobs"
        for directory in (self.root, self._jobs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.operations = Operations(self.root / "ops")
        self._is_newer = records.claim_root(self.root)
        reserve.keep(self.root)
        self._locks = locks.lock_directory(self.root)
        self.secrets = SecretStore(self.root, self._locks)
        self.journal = Journal(self.root, self._locks, is_closed=self._is_newer)
        self.inbox = Inbox(self.root)
        self._starter = Starter(
            self.root,
            release=release,
            python=python,
            plan=plan or partial(launch.plan, python=python),
            lock_directory=self._locks,
            leases=leases or Leases(locks.device_directory()),
        )
        self._finished: dict[str, tuple[int, Job]] = {}
        self._seen: dict[str, Job] = {}

    def start(self, job_id: str, spec: Spec, *, actor: str, op_id: str, run_id: str | None = None) -> Job:
        """Start `spec` as `job_id`; the same name and spec again returns the job that is there.

        Returns once the work's start is on disk. Raises Conflict when the name, or `op_id`, stands for another spec, Precondition when
        the run that it belongs to is stopping, its GPUs are not to be had or it would disturb a measurement, WorkFailed when
        it could not be started.
        """
        directory = self.directory(job_id)
        with self._changing(job_id):
            if not self.operations.took_effect("start", op_id, job_id):
                with self._undisturbed(spec, job_id, run_id):
                    self._starter.begin(directory, spec, actor=actor, run_id=run_id)
                self.operations.remember("start", op_id, job_id, actor)
            elif (directory / "spec.json").exists():
                starter.require_same(directory, spec)
        return self.get(job_id)

    @contextmanager
    def _undisturbed(self, spec: Spec, job_id: str, run_id: str | None) -> Iterator[None]:
        """One start at a time of a measurement of a server, of a training in a directory, or of what writes a store; raises Precondition
        where another would be disturbed.
        """
        match spec:
            case BenchmarkSpec():
                with self._changing(spec.server_job_id):
                    require_undisturbed(self.list(), spec, job_id=job_id, run_id=run_id)
                    yield
            case TrainingSpec():
                with self._changing(_name_of("training", spec.checkpoints)):
                    require_alone(self.list(), spec, job_id=job_id)
                    yield
            case spec if isinstance(spec, StoreWork):
                with self._changing(_name_of("store", str(resolve_path(self.root, spec.store)))):
                    require_sole_writer(self.list(), spec, job_id=job_id, root=self.root)
                    yield
            case _:
                yield

    def stop(self, job_id: str, *, actor: str, op_id: str, reason: str, expected_revision: int | None = None) -> Job:
        """Ask `job_id` to stop; a job that is over stays as it is. The jobs of a run end with it.

        Raises NotFound, Conflict when the job is not at `expected_revision` any more, Precondition when it is not this
        release's to touch, WorkFailed when its supervisor can be neither woken nor replaced.
        """
        with self._changing(job_id):
            job = self.get(job_id)
            if not self.operations.took_effect("stop", op_id, job_id):
                self._expect(job, expected_revision)
                self._stop(job, actor=actor, reason=reason)
                self.operations.remember("stop", op_id, job_id, actor)
        return self.get(job_id)

    def recover(self, job_id: str) -> Job:
        """Give a job whose supervisor died a new one, which ends its strays and finds out what can be known.

        Work that lives goes on under it; of work that is gone the outputs are checked. Raises NotFound, Conflict, WorkFailed.
        """
        directory = self.directory(job_id)
        with self._changing(job_id):
            state = self.get(job_id).state
            if isinstance(state, Orphaned) or (isinstance(state, Lost) and not rescue.is_looked_after(directory)):
                rescue.adopt(self.python, directory)
        return self.get(job_id)

    def recover_all(self) -> None:
        """Recover every job that needs it; one that cannot be recovered now keeps its state and is tried again the next time."""
        for job in self.list():
            if isinstance(job.state, Orphaned | Lost) and not rescue.is_looked_after(self.directory(job.job_id)):
                with contextlib.suppress(RoostError):
                    self.recover(job.job_id)
        self._tidy_locks()
        reserve.keep(self.root)

    def discard(self, job_id: str) -> None:
        """Remove everything that is on record of a finished job that left nothing behind; raises NotFound, Conflict."""
        directory = self.directory(job_id)
        with self._changing(job_id):
            job = self.get(job_id)
            if not isinstance(job.state, Finished) or (job.result is not None and job.result.outputs):
                raise Conflict(f"{job_id} is not to be thrown away: it is not over, or it has results")
            # Out of the list at once: a job without some of its records would be taken for a damaged one.
            aside = self._jobs / f".{job_id}"
            directory.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def get(self, job_id: str) -> Job:
        """The job as it is now; raises NotFound."""
        job = view.read_job(self.directory(job_id), self.secrets.redactor())
        if job is None:
            raise NotFound(
                f"there is no job {job_id} below {self.root}",
                hint="The list of jobs has the names.",
                next_command="roost jobs",
            )
        return job

    def is_there(self, job_id: str) -> bool:
        """Whether the name stands for a job already; raises UsageError when it is no name for one."""
        return (self.directory(job_id) / "spec.json").exists()

    def list(self) -> list[Job]:
        """All jobs, newest first; a finished job's directory is read once."""
        names = [entry.name for entry in self._jobs.iterdir() if is_job_id(entry.name)]
        found = [job for name in names if (job := self._read(name)) is not None]
        return sorted(found, key=lambda job: (job.created_at, job.job_id), reverse=True)

    def read_log(self, job_id: str, offset: int | None, limit: int) -> LogPage:
        """At most `limit` bytes (and at most 256 KiB) of the log from an absolute offset, None for its end; raises NotFound."""
        directory = self._existing(job_id)
        may_grow = not (directory / "exit.json").exists()
        redactor = self.secrets.redactor()
        page = covered_log.read_log(directory / "out.log", offset, limit, redactor, may_grow=may_grow)
        return LogPage(job_id=job_id, offset=page.offset, data=page.data, start=page.start, size=page.size)

    def read_progress(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> "list[ProgressRecord]":
        """The progress records after `after_seq`, at most `limit` and half a mebibyte of them; raises NotFound."""
        return logs.ProgressReader(self._existing(job_id) / "progress.jsonl", after_seq).read(limit)

    def directory(self, job_id: str) -> Path:
        """Where the job's records are; raises UsageError when it is no name for a job."""
        if not is_job_id(job_id):
            raise UsageError(f"{job_id!r} is no job id: lower-case letters, digits and dashes, at most 64 characters")
        return self._jobs / job_id

    def _existing(self, job_id: str) -> Path:
        directory = self.directory(job_id)
        if not (directory / "spec.json").exists():
            self.get(job_id)
        return directory

    def _read(self, name: str) -> Job | None:
        """One job of the list: a directory that cannot be read for a moment must not hide the others, nor look like an end."""
        try:
            job = self._read_unless_finished(name)
        except OSError as error:
            return self._seen.get(name) or view.quarantine(self._jobs / name, str(error), self.secrets.redactor())
        if job is not None:
            self._seen[name] = job
        return job

    def _read_unless_finished(self, name: str) -> Job | None:
        try:
            ended = (self._jobs / name / "exit.json").stat().st_mtime_ns
        except FileNotFoundError:
            return view.read_job(self._jobs / name, self.secrets.redactor())
        known = self._finished.get(name)
        if known is not None and known[0] == ended:
            return known[1]
        job = view.read_job(self._jobs / name, self.secrets.redactor())
        if job is not None and view.is_settled(job):
            self._finished[name] = (ended, job)
        return job

    @contextmanager
    def changing_storage(self) -> Iterator[None]:
        """One change of what lies on the disks at a time; raises Conflict when another takes too long."""
        with self._locked(locks.STORAGE_LOCK, "what lies on the disks"):
            yield

    @contextmanager
    def changing_inbox(self) -> Iterator[None]:
        """One request is taken in at a time; raises Conflict when another takes too long."""
        with self._locked(locks.INBOX_LOCK, "the inbox"):
            yield

    @contextmanager
    def changing_approval(self, approval_id: str) -> Iterator[None]:
        """One decision of a request at a time; raises Conflict when another takes too long."""
        with self._changing(approval_id):
            yield

    def is_changing(self, name: str) -> bool:
        """Whether a change of this job or request is under way."""
        return locks.is_held(self._locks / f"{name}.change")

    @contextmanager
    def _changing(self, job_id: str) -> Iterator[None]:
        self.directory(job_id)
        with self._locked(f"{job_id}.change", job_id):
            yield

    @contextmanager
    def _locked(self, lock_name: str, subject: str) -> Iterator[None]:
        if self._is_newer:
            raise Precondition(
                f"{self.root} was set up by a newer Roost than this one: it is only read, never changed",
                hint="Use that newer Roost, or another root.",
            )
        path = self._locks / lock_name
        try:
            lock = locks.take(path, _CHANGE_TIMEOUT_S)
        except locks.LockTimeout as error:
            raise Conflict(
                f"another change of {subject} is under way: {error}", hint="Try again in a moment."
            ) from error
        try:
            yield
        except OSError as error:
            if not reserve.is_full(error):
                raise
            raise Precondition(
                f"there is no room left on the disk of {self.root} ({error.strerror}); {subject} is as it was",
                hint="Make room there (`df -h` and `df -i` say what is short), then ask again.",
            ) from error
        finally:
            locks.give_back(path, lock)

    def _expect(self, job: Job, revision: int | None) -> None:
        if revision is None or revision == job.revision:
            return
        raise Conflict(
            f"{job.job_id} changed since you looked (revision {revision}, now {job.revision}): {self._change_of(job)}",
            hint="Look at the job again, then decide.",
            next_command=f"roost status {job.job_id}",
        )

    def _change_of(self, job: Job) -> str:
        stop = records.read_records(self.directory(job.job_id)).stop
        if stop is not None:
            return f"{stop.requested_by} asked it to stop ({stop.reason})"
        match job.state:
            case Finished(outcome=outcome_name):
                return f"it is over ({outcome_name})"
            case state:
                return f"it is {type(state).__name__.lower()} now"

    def _stop(self, job: Job, *, actor: str, reason: str) -> None:
        directory = self.directory(job.job_id)
        match job.state:
            case Finished():
                return
            case Lost():
                if not rescue.is_looked_after(directory):
                    rescue.adopt(self.python, directory)
                return
            case Quarantined(reason=why):
                raise Precondition(f"{job.job_id} is quarantined and not touched: {why}")
            case Foreign(incarnation=other):
                raise Precondition(f"{job.job_id} belongs to another incarnation of this host ({other}): stop it there")
            case _:
                stop = StopRecord(requested_by=actor, requested_at=time.time(), reason=reason)
                reserve.write_once(self.root, directory / "stop.json", records.encode(stop))
        match job.state:
            case Queued():
                self._record_stopped(directory, "before it was started")
            case Orphaned():
                rescue.adopt(self.python, directory)
            case Stalled():
                rescue.wake(self.python, directory)
            case _:
                pass

    def _tidy_locks(self) -> None:
        """Remove the lock files of holders that were killed; one that is held or waited for is left alone."""
        for path in self._locks.iterdir():
            if path.suffix == ".change" or (self._jobs / path.stem / "exit.json").exists():
                with contextlib.suppress(locks.LockTimeout):
                    locks.give_back(path, locks.take(path, 0.0))

    def _record_stopped(self, directory: Path, circumstance: str) -> None:
        stop = plain_json.read_json(directory / "stop.json") or {}
        reason = f"{outcome.stop_reason(stop)} ({circumstance})"
        ended = ExitRecord(exit_code=None, signal=None, ended_at=time.time(), outcome="stopped", reason=reason)
        reserve.write_once(self.root, directory / "exit.json", records.encode(ended))


def _name_of(kind: str, place: str) -> str:
    """What a start that concerns a directory is locked by."""
    return f"{kind}-{hashlib.sha256(place.encode()).hexdigest()[:32]}"
