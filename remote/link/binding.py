"""What a change that waits for a person is bound to: the state of the world that it was asked in, drawn again when it is approved."""

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from remote.errors import Conflict, NotFound, Precondition, UsageError
from remote.jobs.store import JobStore
from remote.paths import resolve_path
from remote.protocol.approvals import Approvable
from remote.protocol.jobs import is_over
from remote.protocol.orders import StartJob, StopJob
from remote.protocol.secrets import RemoveSecret
from remote.protocol.specs import MappingCopySpec, PurgeSpec, RunSpec
from remote.protocol.storage import MoveToTrash, RestoreFromTrash

Facts = dict[str, str]


def bind(store: JobStore, request: Approvable, expires_at: float) -> tuple[Approvable, Facts]:
    """The request tied to the world as it is now, and that world in words; raises RoostError where it could not be carried out now."""
    match request:
        case StopJob():
            return _bind_stop(store, request)
        case MoveToTrash():
            return _bind_reclaim(store, request, expires_at)
        case RestoreFromTrash(name=name):
            return request, _restore_facts(store, name)
        case RemoveSecret(name=name):
            kept = next((each for each in store.secrets.list().secrets if each.name == name), None)
            if kept is None:
                raise NotFound(f"there is no token {name}", next_command="roost secrets list")
            return request, {"set at": f"{kept.set_at:.0f}", "set by": kept.set_by}
        case StartJob():
            return request, _start_facts(store, request)


def fingerprint(request: Approvable, facts: Facts) -> str:
    """Sixteen hexadecimal characters that stand for a change and the world that it was asked in."""
    return hashlib.sha256(msgspec.json.encode([request, facts], order="sorted")).hexdigest()[:16]


def is_same(request: Approvable, facts: Facts, other: Approvable, others: Facts) -> bool:
    """Whether two requests ask for the same in the same world, by whatever operation."""
    return _essence(request, facts) == _essence(other, others)


def what_changed(asked: Facts, now: Facts) -> list[str]:
    """The facts that differ, in words."""
    return [
        f"{name} was {asked.get(name, 'not there')}, is {now.get(name, 'not there')}"
        for name in dict.fromkeys([*asked, *now])
        if asked.get(name) != now.get(name)
    ]


def _essence(request: Approvable, facts: Facts) -> object:
    plain = msgspec.to_builtins(request)
    own = {"op_id", "token"}
    if isinstance(request, StartJob) and not request.job_id.endswith(f"-{request.op_id}"):
        own.add("job_id")  # made up for this one request, where no key names it
    return {key: value for key, value in plain.items() if key not in own}, {
        key: value for key, value in facts.items() if key != "content"
    }


def _bind_stop(store: JobStore, request: StopJob) -> tuple[Approvable, Facts]:
    job = store.get(request.job_id)
    if is_over(job.state):
        raise Precondition(f"{job.job_id} is over: there is nothing to stop", next_command=f"roost status {job.job_id}")
    if request.expected_revision not in (None, job.revision):
        raise Conflict(
            f"{job.job_id} changed since you looked (revision {request.expected_revision}, now {job.revision})",
            hint="Look at the job again, then decide.",
            next_command=f"roost status {job.job_id}",
        )
    children = sorted(each.job_id for each in store.list() if each.run_id == job.job_id and not is_over(each.state))
    facts = {
        "state": type(job.state).__name__.lower(),
        "revision": str(job.revision),
        "its jobs at work": ", ".join(children) or "none",
    }
    return msgspec.structs.replace(request, expected_revision=job.revision), facts


def _bind_reclaim(store: JobStore, request: MoveToTrash, expires_at: float) -> tuple[Approvable, Facts]:
    from remote.storage import reclaim  # noqa: PLC0415 - a link opens in a tenth of the time without it

    reclaim.check_token(store, request.paths, request.token)
    plan = reclaim.plan_reclaim(store, request.paths, expires_at=expires_at)
    facts = {
        "goes": ", ".join(plan.paths),
        "bytes": str(plan.bytes),
        "files": str(plan.files),
        "stays": ", ".join(item.path for item in plan.kept) or "nothing",
        "content": plan.token,
    }
    return msgspec.structs.replace(request, token=plan.token), facts


def _restore_facts(store: JobStore, name: str) -> Facts:
    from remote.artifacts import trash  # noqa: PLC0415 - as above
    from remote.storage import areas  # noqa: PLC0415

    entry = next((each for each in trash.find(areas.trashes(store)) if each.name == name), None)
    if entry is None:
        raise NotFound(f"there is no {name} in the trash", next_command="roost storage usage")
    return {"goes to": entry.origin, "bytes": str(entry.bytes), "files": str(entry.files)}


def _start_facts(store: JobStore, request: StartJob) -> Facts:
    spec = request.spec
    match spec:
        case RunSpec(plan=None):
            raise UsageError("a run is asked for by the fingerprint of its plan", next_command="roost plan")
        case RunSpec(run=run, plan=str() as plan):
            from remote.pipeline.applying import require_unchanged  # noqa: PLC0415 - as above

            require_unchanged(store.root, store.python, run, plan)
            return {"plan": plan}
        case PurgeSpec(entries=entries):
            from remote.artifacts import trash  # noqa: PLC0415 - as above

            missing = [entry for entry in entries if not Path(entry).is_dir()]
            if missing:
                raise NotFound(f"not in the trash: {', '.join(missing)}", next_command="roost storage usage")
            sizes = {Path(entry).name: trash.size_of(Path(entry)) for entry in entries}
            return {name: f"{size.bytes} bytes, {size.files} files" for name, size in sizes.items()}
        case MappingCopySpec(source=source, destination=destination):
            return {"source": _content(store, source), "destination": _content(store, destination)}
        case _:
            return {}


def _content(store: JobStore, path: str) -> str:
    """Which mapping lies at a path: a hash of the hashes of its files."""
    from remote.artifacts.mapping_checks import Companions, validate_against  # noqa: PLC0415 - as above

    with suppress(NotFound):
        report = validate_against(resolve_path(store.root, path), Companions())
        words = "".join(f"{file.name} {file.sha256}\n" for file in report.files)
        return hashlib.sha256(words.encode()).hexdigest()[:16]
    return "nothing"
