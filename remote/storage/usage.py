"""How much lies where: every part of every run, every job, every release, and what else is below ROOT, plain files included."""

from pathlib import Path

from remote.artifacts import trash
from remote.jobs.store import JobStore
from remote.protocol.storage import StorageEntry, StorageKind, StorageReport
from remote.storage import areas
from remote.storage.areas import Area
from remote.telemetry.mounts import MountReader

_LISTED_BY_PARTS = ("jobs", "runs", "releases", "trash", "ops")

_OWN_RECORDS = ("approvals", "journal", "notifications", "plans", "reserve", "schema.json", "secrets.json", "telemetry")
"""Directories and files of ROOT that Roost keeps for itself, each bounded by itself."""

_NOT_OURS = "Roost did not make it, so it does not delete it: whoever put it there can, on the host"


def read_storage(store: JobStore) -> StorageReport:
    """The whole report, the largest entries first; it looks at every file, so it may take a while on a slow disk."""
    found = areas.find_areas(store)
    entries = [entry for area in found for entry in _entries_of(area)]
    entries += [
        _entry(path, "release", [], "removed by itself an hour after its last use") for path in _releases(store)
    ]
    entries += [
        _entry(path, "other", [], "records of Roost itself" if path.name in _OWN_RECORDS else _NOT_OURS)
        for path in sorted(store.root.iterdir())
        if path.name not in _LISTED_BY_PARTS
    ]
    entries += [_entry(path, "other", [], _NOT_OURS) for path in areas.stray_files(store)]
    return StorageReport(
        root=str(store.root),
        mounts=MountReader(store.root).read(),
        entries=sorted((entry for entry in entries if entry), key=lambda entry: entry.bytes, reverse=True),
        trash=trash.find(areas.trashes(store)),
    )


def _entries_of(area: Area) -> list[StorageEntry | None]:
    why_not = "in use" if area.used_by else None if area.is_marked else "nothing in it shows that Roost made it"
    if area.kind == "job":
        return [_entry(area.path, "job", area.used_by, why_not)]
    return [
        _entry(path, kind, area.used_by, why_not or area.precious.get(path)) for kind, path in areas.parts_of(area.path)
    ]


def _releases(store: JobStore) -> list[Path]:
    directory = store.root / "releases"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _entry(path: Path, kind: StorageKind, used_by: list[str], kept_because: str | None) -> StorageEntry | None:
    """None when it went away while it was looked at."""
    try:
        modified_at = path.lstat().st_mtime
        size = trash.size_of(path)
    except FileNotFoundError:
        return None
    return StorageEntry(
        path=str(path),
        kind=kind,
        bytes=size.bytes,
        files=size.files,
        modified_at=modified_at,
        used_by=used_by,
        kept_because=kept_because,
    )
