"""The releases on a host: pinned by the jobs and links that use them, removed when nothing does."""

import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remote.jobs import locks, records
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished, Lost

UNUSED_S = 3600.0
"""A release that was unpacked or asked for more recently may belong to a link that is just starting."""

_RELEASE = re.compile(r"[0-9a-f]{64}")
_LEFTOVER = re.compile(r"\.(release|removed)-.*")


@contextmanager
def use_release(store: JobStore) -> Iterator[None]:
    """While this lasts nobody removes the release of `store`."""
    lock = os.open(_lock_of(store, store.release.name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(lock)


def remove_unused_releases(store: JobStore) -> list[str]:
    """Remove what no unfinished job, no live link and nobody in the last hour has used; the names of what went.

    Raises OSError where the disk does not answer, UnreadableRecord while a job's records cannot be read: what it needs is
    not known then, so nothing is removed.
    """
    directory = store.root / "releases"
    if not directory.is_dir():
        return []
    pinned = {Path(release).name for release in _pinned(store)} | {store.release.name}
    removed: list[str] = []
    for path in directory.iterdir():
        if time.time() - path.lstat().st_mtime < UNUSED_S:
            continue
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
        elif _RELEASE.fullmatch(path.name) and path.name not in pinned and _remove(store, path):
            removed.append(path.name)
    return removed


def _pinned(store: JobStore) -> list[str]:
    """The releases that jobs will still import from."""
    unfinished = [job for job in store.list() if not isinstance(job.state, Finished | Lost)]
    launches = [records.read_launch(store.directory(job.job_id)) for job in unfinished]
    return [launch.release for launch in launches if launch is not None]


def _remove(store: JobStore, release: Path) -> bool:
    """Whether it could be removed: nobody holds it, and nobody has asked for it meanwhile."""
    path = _lock_of(store, release.name)
    try:
        lock = locks.take(path, 0.0)
    except locks.LockTimeout:
        return False
    try:
        if time.time() - release.stat().st_mtime < UNUSED_S:
            return False
        aside = release.with_name(f".removed-{secrets.token_hex(4)}-{release.name}")
        release.rename(aside)
    finally:
        locks.give_back(path, lock)
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _lock_of(store: JobStore, release: str) -> Path:
    return locks.lock_directory(store.root) / f"release-{release}"
