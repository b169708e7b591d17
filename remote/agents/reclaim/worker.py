"""The reclaim agent's work: purge entries of the trash, file by file, because that is what takes the time."""

import time
from pathlib import Path

from remote.agents.harness import JobContext, main
from remote.artifacts import trash
from remote.errors import Precondition
from remote.protocol.jobs import JobResult
from remote.protocol.progress import FilesRemoved
from remote.protocol.specs import PurgeSpec

_TELL_EVERY_S = 0.5


def work(spec: PurgeSpec, job: JobContext) -> JobResult:
    """Purge; an entry that is gone already counts as done, anything that is no entry of a trash is refused before the first file."""
    entries = [Path(path) for path in spec.entries if Path(path).exists()]
    strangers = [str(entry) for entry in entries if not trash.is_entry(entry)]
    if strangers:
        raise Precondition(
            f"{', '.join(strangers)} is no entry of the trash: nothing was deleted",
            hint="reclaim it first, which moves it into the trash",
            next_command="roost storage usage",
        )
    sizes = [trash.size_of(entry / "content") for entry in entries]
    files_total = sum(size.files for size in sizes)
    removed_files, removed_bytes, told_at = 0, 0, float("-inf")

    def tell(files: int, freed: int) -> None:
        nonlocal told_at
        job.check_stop()
        if time.monotonic() - told_at >= _TELL_EVERY_S:
            told_at = time.monotonic()
            job.tell(
                FilesRemoved(
                    files_done=removed_files + files, files_total=files_total, bytes_freed=removed_bytes + freed
                )
            )

    for entry in entries:
        done = trash.purge(entry, tell)
        removed_files, removed_bytes = removed_files + done.files, removed_bytes + done.bytes
    job.tell(FilesRemoved(files_done=removed_files, files_total=files_total, bytes_freed=removed_bytes))
    return JobResult(summary={"entries": len(entries), "files": removed_files, "bytes": removed_bytes})


if __name__ == "__main__":
    main(PurgeSpec, work)
