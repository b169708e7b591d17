"""What of a disk's content a look at the host's directories accounts for."""

from pathlib import PurePosixPath

from remote.protocol.storage import StorageReport


def bytes_elsewhere(report: StorageReport) -> dict[str, int]:
    """Bytes in use on each mount, by its path, that are neither entries of the report nor in the trash; 0 at the least."""
    left = {mount.path: mount.used_bytes for mount in report.mounts}
    for each in [*report.entries, *report.trash]:
        around = [path for path in left if PurePosixPath(each.path).is_relative_to(path)]
        if around:
            left[max(around, key=len)] -= each.bytes
    return {path: max(0, size) for path, size in left.items()}
