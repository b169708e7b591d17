"""Reclaiming space: a plan that says exactly what goes, and its execution if nothing changed since."""

import hashlib
import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from remote.artifacts import trash
from remote.errors import Conflict, NotFound, Precondition
from remote.jobs.store import JobStore
from remote.protocol.storage import KeptItem, ReclaimPlan, TrashList
from remote.storage import areas
from remote.storage.areas import Area

TOKEN_LIFE_S = 900.0
"""A plan that a person looked at longer ago is looked at again."""


class _Move(NamedTuple):
    """What goes of `origin`: "." for all of it, else the names in it."""

    origin: Path
    items: list[str]
    kept: list[KeptItem]


def plan_reclaim(store: JobStore, paths: list[str], *, expires_at: float | None = None) -> ReclaimPlan:
    """What reclaiming `paths` would do; a path that must not go is a problem with its reason, and then nothing goes."""
    expires_at = float(int(expires_at or time.time() + TOKEN_LIFE_S))
    found = areas.find_areas(store)
    moves: list[_Move] = []
    problems: list[str] = []
    for text in dict.fromkeys(paths):
        try:
            moves.append(_plan_one(store, found, text))
        except Precondition as refusal:
            problems.append(str(refusal))
    sizes = [trash.size_of(move.origin / item) for move in moves for item in move.items]
    return ReclaimPlan(
        paths=[str(move.origin) for move in moves],
        bytes=sum(size.bytes for size in sizes),
        files=sum(size.files for size in sizes),
        kept=[item for move in moves for item in move.kept],
        problems=problems,
        token=_token(moves, expires_at),
        expires_at=expires_at,
    )


def move_to_trash(store: JobStore, paths: list[str], token: str, *, actor: str, op_id: str) -> TrashList:
    """Carry out the plan that `token` stands for; the trash as it is then.

    Raises Conflict when the plan is too old or the directories changed since, Precondition when something must not go.
    """
    with store.changing_storage():
        if not store.operations.took_effect("reclaim", op_id, token):
            check_token(store, paths, token)
            found = areas.find_areas(store)
            for text in dict.fromkeys(paths):
                move = _plan_one(store, found, text)
                trash.put(areas.trash_for(store, _area_path(found, move.origin)), move.origin, move.items, actor=actor)
            store.operations.remember("reclaim", op_id, token, actor)
    return TrashList(entries=trash.find(areas.trashes(store)))


def restore(store: JobStore, name: str, *, actor: str, op_id: str) -> TrashList:
    """Put a trash entry back; the trash as it is then. Raises NotFound, and Conflict when its place is taken."""
    with store.changing_storage():
        if not store.operations.took_effect("restore", op_id, name):
            entries = trash.find(areas.trashes(store))
            path = next((entry.path for entry in entries if entry.name == name), None)
            if path is None:
                raise NotFound(f"there is no {name} in the trash", next_command="roost storage usage")
            trash.restore(Path(path))
            store.operations.remember("restore", op_id, name, actor)
    return TrashList(entries=trash.find(areas.trashes(store)))


def check_token(store: JobStore, paths: list[str], token: str) -> None:
    """Raises Conflict unless `token` is that of a plan for `paths` that still holds, Precondition where something must not go."""
    expires_at = _expiry_of(token)
    if time.time() > expires_at:
        raise Conflict("the plan is too old", hint="Plan again, look, then decide.")
    plan = plan_reclaim(store, paths, expires_at=expires_at)
    if plan.problems:
        raise Precondition("; ".join(plan.problems), hint="nothing was moved")
    if plan.token != token:
        raise Conflict(
            "what lies there changed since the plan was made: nothing was moved", hint="Plan again, look, then decide."
        )


def _plan_one(store: JobStore, found: list[Area], text: str) -> _Move:
    path = _real_path(store.root, text)
    area = next((one for one in found if path == one.path or path.is_relative_to(one.path)), None)
    if area is None:
        raise Precondition(
            f"{path} is nothing of a run or a job, so Roost does not delete it: whoever put it there can"
        )
    if area.kind == "job" and path != area.path:
        raise Precondition(f"{path} is a part of a job's records: they go as a whole, or not")
    if not area.is_marked:
        raise Precondition(f"nothing in {area.path} shows that Roost made it, so Roost does not delete it")
    users = [job.job_id for job in store.list() if job.job_id in area.used_by or areas.uses(store, job, path)]
    if users:
        raise Precondition(f"{path} is in use by {', '.join(users)}")
    _refuse_other_file_systems(path)
    kept = [KeptItem(path=str(item), reason=why) for item, why in area.precious.items() if item != path]
    if path != area.path or not kept:
        return _Move(path, ["."], [])
    going = sorted(entry.name for entry in path.iterdir() if str(entry) not in {item.path for item in kept})
    if not going:
        raise Precondition(f"{path} holds only what is small and precious; name it to reclaim it")
    return _Move(path, going, kept)


def _real_path(root: Path, text: str) -> Path:
    """The directory or file that is meant, provided that no link leads to it; raises Precondition."""
    path = Path(os.path.normpath(root / text))
    if not path.exists() and not path.is_symlink():
        raise Precondition(f"there is no {path}")
    if path.resolve() != path:
        raise Precondition(f"{path} is reached by a link: name what it leads to, {path.resolve()}")
    return path


def _refuse_other_file_systems(path: Path) -> None:
    device = path.stat().st_dev
    for directory, names, _ in os.walk(path):
        for name in names:
            inner = Path(directory, name)
            if inner.lstat().st_dev != device:
                raise Precondition(f"another file system is mounted at {inner}: unmount it first")


def _area_path(found: list[Area], path: Path) -> Path:
    return next(area.path for area in found if path == area.path or path.is_relative_to(area.path))


def _token(moves: list[_Move], expires_at: float) -> str:
    """`<expiry in hexadecimal>-<digest>` over every file that would go: its inode, size and time of change."""
    digest = hashlib.sha256(f"{int(expires_at):x}".encode())
    for move in moves:
        for item in move.items:
            digest.update(msgspec.json.encode([str(move.origin), item]))
            for entry in _listing(move.origin / item):
                digest.update(msgspec.json.encode(entry))
    return f"{int(expires_at):x}-{digest.hexdigest()[:32]}"


def _expiry_of(token: str) -> float:
    try:
        return float(int(token.partition("-")[0], 16))
    except ValueError:
        raise Conflict(f"{token!r} is no token of a plan", hint="Plan again.") from None


def _listing(path: Path) -> list[tuple[str, int, int, int]]:
    if not path.is_dir() or path.is_symlink():
        status = path.lstat()
        return [(path.name, status.st_ino, status.st_size, status.st_mtime_ns)]
    return [
        (str(Path(directory, name).relative_to(path)), status.st_ino, status.st_size, status.st_mtime_ns)
        for directory, directories, names in os.walk(path)
        for name in sorted([*directories, *names])
        for status in [Path(directory, name).lstat()]
    ]
