"""The directories that belong to Roost: jobs, runs below ROOT, and the directories that runs were told to use."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.artifacts.manifest import MANIFEST_NAME
from remote.errors import Precondition, UsageError
from remote.jobs.store import JobStore
from remote.paths import resolve_path
from remote.pipeline.layout import RunLayout, lay_out
from remote.pipeline.verdict import verdict_in
from remote.protocol.jobs import Finished, Job, Lost
from remote.protocol.specs import RunSpec
from remote.protocol.storage import StorageKind


class Area(NamedTuple):
    """A directory of Roost's: what it is, the jobs that still use it, and what in it is precious, with the reason."""

    path: Path
    kind: StorageKind
    used_by: list[str]
    precious: dict[Path, str]
    is_marked: bool
    """Whether its content proves that Roost made it."""


def find_areas(store: JobStore) -> list[Area]:
    """Every run's and every job's directory that is there."""
    jobs = store.list()
    runs = _run_directories(store, jobs)
    areas = [_run_area(store, path, jobs) for path in sorted(runs)]
    areas += [_job_area(store, job) for job in jobs]
    return [area for area in areas if area.path.is_dir() and not area.path.is_symlink()]


def stray_files(store: JobStore) -> list[Path]:
    """Plain files and links where only directories of runs and jobs belong."""
    places = [place for name in ("runs", "jobs") if (place := store.root / name).is_dir()]
    return [path for place in places for path in sorted(place.iterdir()) if path.is_symlink() or not path.is_dir()]


def trashes(store: JobStore) -> list[Path]:
    """Where trash may be: below ROOT, and beside the directories of runs that lie elsewhere."""
    elsewhere = {trash_for(store, path) for path in _run_directories(store, store.list())}
    return [store.root / "trash", *sorted(elsewhere - {store.root / "trash"})]


def trash_for(store: JobStore, path: Path) -> Path:
    """The trash on the same file system as `path`."""
    here = path if path.exists() else path.parent
    same = here.exists() and here.stat().st_dev == store.root.stat().st_dev and path.is_relative_to(store.root)
    return store.root / "trash" if same else path.parent / ".roost-trash"


def parts_of(directory: Path) -> list[tuple[StorageKind, Path]]:
    """The known parts of a run's directory."""
    kinds: dict[str, StorageKind] = {
        "store": "store",
        "mapping": "mapping",
        "checkpoints": "checkpoints",
        "drafter": "drafter",
        "evaluation-baseline": "evaluation",
        "evaluation-drafter": "evaluation",
        "verdict": "verdict",
        "spool": "spool",
    }
    return [(kinds.get(path.name, "other"), path) for path in sorted(directory.iterdir())]


def uses(store: JobStore, job: Job, path: Path) -> bool:
    """Whether an unfinished job names `path`, something in it, or something around it that a run is made in."""
    if isinstance(job.state, Finished | Lost) or job.spec is None:
        return False
    named: list[Path] = []
    for text in _strings(msgspec.to_builtins(job.spec)):
        with suppress(UsageError):  # words with a slash that are no path
            named += [resolve_path(store.root, text)] if "/" in text else []
    if isinstance(job.spec, RunSpec):
        named.append(lay_out(job.spec.run, store.root).directory)
    return any(one == path or one.is_relative_to(path) or path.is_relative_to(one) for one in named)


def _strings(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for inner in value.values() for text in _strings(inner)]
        case list() | tuple():
            return [text for inner in value for text in _strings(inner)]
        case _:
            return []


def _run_directories(store: JobStore, jobs: list[Job]) -> dict[Path, RunLayout | None]:
    runs = store.root / "runs"
    found: dict[Path, RunLayout | None] = dict.fromkeys(runs.iterdir()) if runs.is_dir() else {}
    for job in jobs:
        if isinstance(job.spec, RunSpec):
            layout = lay_out(job.spec.run, store.root)
            found[layout.directory] = layout
    return found


def _run_area(store: JobStore, path: Path, jobs: list[Job]) -> Area:
    known = any(isinstance(job.spec, RunSpec) and lay_out(job.spec.run, store.root).directory == path for job in jobs)
    marked = known or any(path.glob(f"*/{MANIFEST_NAME}"))
    users = [job.job_id for job in jobs if uses(store, job, path)]
    return Area(path, "run", users, _precious(path) if path.is_dir() else {}, marked)


def _precious(run: Path) -> dict[Path, str]:
    reasons = {
        run / "mapping": "the draft vocabulary is small, and drafters are useless without theirs",
        run / "verdict": "the verdict is small and says what the run was worth",
        run / "evaluation-baseline": "the report is small and the verdict rests on it",
        run / "evaluation-drafter": "the report is small and the verdict rests on it",
    }
    if _was_promoted(run / "verdict"):
        reasons[run / "drafter"] = "the verdict promotes this drafter"
    return {path: reason for path, reason in reasons.items() if path.exists()}


def _was_promoted(verdict: Path) -> bool:
    try:
        return verdict_in(verdict).decision == "promote"
    except (OSError, msgspec.DecodeError, Precondition):
        return False


def _job_area(store: JobStore, job: Job) -> Area:
    ended = isinstance(job.state, Finished | Lost)
    return Area(store.directory(job.job_id), "job", [] if ended else [job.job_id], {}, is_marked=True)
