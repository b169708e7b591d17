"""How a job begins: its name is reserved, its devices are leased, its launch is put on record, its supervisor started."""

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from remote.artifacts import reserve
from remote.errors import Conflict, Precondition
from remote.jobs import launch, locks, records, view
from remote.jobs.difference import differences, few_words
from remote.jobs.gpu_demand import GpuDemand
from remote.jobs.launch import LaunchPlan
from remote.jobs.leases import Leases, device_environment
from remote.jobs.records import LaunchRecord
from remote.jobs.spawn import spawn_supervisor
from remote.protocol.codec import ProtocolError, decode_spec
from remote.protocol.jobs import Queued
from remote.protocol.specs import Spec

STORAGE_TIMEOUT_S = 60.0


class Starter:
    """Starts the jobs below one root; its caller holds the job's lock."""

    def __init__(
        self,
        root: Path,
        *,
        release: Path,
        python: str,
        plan: Callable[[Spec], LaunchPlan],
        lock_directory: Path,
        leases: Leases,
    ) -> None:
        self._root = root
        self._release = release
        self._python = python
        self._plan = plan
        self._locks = lock_directory
        self._storage_lock = lock_directory / locks.STORAGE_LOCK
        self.leases = leases

    def begin(self, directory: Path, spec: Spec, *, actor: str, run_id: str | None) -> None:
        """Start `spec` in `directory` unless it was started before; a job that gets no devices leaves nothing behind.

        Raises Conflict when the name stands for another spec, Precondition when its run is ending, its devices are not to
        be had or its supervisor cannot be run, WorkFailed when it could not be started.
        """
        _refuse_for_ending_run(directory.parent, run_id)
        if not self._is_to_start(directory, spec):
            return
        planned = self._plan(spec)
        with self.leases.lease(directory, GpuDemand(planned.gpus, planned.gpu_indices)) as gpus:
            # Whoever frees the disks sees the job, or has moved what it names before the job is there.
            try:
                with locks.held(self._storage_lock, STORAGE_TIMEOUT_S):
                    self.reserve(directory, spec)
            except locks.LockTimeout as error:
                raise Conflict(f"the disks are being tidied up: {error}", hint="Try again in a moment.") from error
            cookie = self.write_launch(directory, planned, actor=actor, run_id=run_id, gpus=gpus)
            spawn_supervisor(self._python, directory, cookie)

    def reserve(self, directory: Path, spec: Spec) -> None:
        """Let the name stand for `spec` from now on; raises Conflict when it stands for another."""
        reserve.insist(self._root, partial(directory.mkdir, mode=0o700, exist_ok=True))
        content = msgspec.json.format(msgspec.json.encode(spec), indent=1) + b"\n"
        if not reserve.write_once(self._root, directory / "spec.json", content):
            require_same(directory, spec)

    def write_launch(
        self, directory: Path, planned: LaunchPlan, *, actor: str, run_id: str | None, gpus: Sequence[int] = ()
    ) -> str:
        """Put on record what the supervisor is to run; the cookie of the record that holds."""
        cookie = secrets.token_hex(16)
        environment = launch.work_environment(
            root=str(self._root), directory=str(directory), cookie=cookie, release=str(self._release)
        )
        record = LaunchRecord(
            job_id=directory.name,
            agent=planned.agent,
            argv=planned.argv,
            environment={**planned.environment, **environment, **device_environment(gpus)},
            cwd=str(directory),
            cookie=cookie,
            lock=str(self._locks / f"{directory.name}.lock"),
            release=str(self._release),
            created_at=time.time(),
            created_by=actor,
            run_id=run_id,
            stop_grace_s=planned.stop_grace_s,
            log_limit_bytes=planned.log_limit_bytes,
            gpus=list(gpus),
            gpu_locks=str(self.leases.directory),
        )
        if reserve.write_once(self._root, directory / "launch.json", records.encode(record)):
            return cookie
        there = records.read_launch(directory)
        if there is not None and there.gpus == record.gpus:
            return there.cookie
        # Planned before and never started: the devices of that time may be others' by now.
        reserve.write_atomic(self._root, directory / "launch.json", records.encode(record))
        return cookie

    def _is_to_start(self, directory: Path, spec: Spec) -> bool:
        if not (directory / "spec.json").exists():
            return True
        self.reserve(directory, spec)
        job = view.read_job(directory)
        return job is None or isinstance(job.state, Queued)


def require_same(directory: Path, spec: Spec) -> None:
    """Raises Conflict, with what differs, when the job in `directory` is of another spec than `spec`."""
    written = (directory / "spec.json").read_bytes()
    try:
        found = differences(decode_spec(written), spec)
    except ProtocolError:  # of another release: only the same words are surely the same
        found = differences(written.decode(errors="replace"), msgspec.json.encode(spec).decode())
    if not found:
        return
    there = view.read_job(directory)
    raise Conflict(
        f"{directory.name} is already a job of another spec"
        + ("" if there is None else f", started by {there.created_by}")
        + f": {few_words(found)}",
        hint="Choose another name or key for this job, or ask for the same again.",
        next_command=f"roost status {directory.name}",
    )


def _refuse_for_ending_run(jobs: Path, run_id: str | None) -> None:
    if run_id is not None and any((jobs / run_id / record).exists() for record in ("stop.json", "exit.json")):
        raise Precondition(f"the run {run_id} is stopping or over: it starts no more jobs")
