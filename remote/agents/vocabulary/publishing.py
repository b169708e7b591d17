"""Giving an artifact of this agent its name: whole, once, never over anything else."""

from collections.abc import Callable
from pathlib import Path

from remote.agents.harness import JobContext
from remote.artifacts.landing import clear_landed, is_taken, land
from remote.artifacts.manifest import artifact_ref, read_manifest, verify
from remote.artifacts.mapping import FILE_NAMES
from remote.errors import Conflict, Precondition
from remote.protocol.jobs import ArtifactRef

FILES = len(FILE_NAMES) + 3
"""Inodes of a mapping: its files, its manifest by way of another name, its directory."""

SMALL_BYTES = 64 << 10
"""More than a manifest, the metadata and the headers take."""


def find_same(kind: str, destination: Path, fingerprint: str) -> ArtifactRef | None:
    """The artifact that is to be made, if it lies there already; raises Conflict where something else has the name."""
    if not is_taken(destination):
        return None
    try:
        if read_manifest(destination).fingerprint == fingerprint:
            verify(destination)
            return artifact_ref(kind, destination)
    except (Precondition, OSError):
        pass
    raise Conflict(
        f"{destination} exists and is not what would be made; nothing was written",
        hint="choose another destination, or move that one away",
    )


def publish(
    job: JobContext,
    kind: str,
    destination: Path,
    fingerprint: str,
    bytes_needed: int,
    write: Callable[[Path], object],
    *,
    replace: bool = False,
) -> ArtifactRef:
    """Let `write` fill a directory and give it the name `destination`; what is the same is there already.

    Raises Conflict where something else has the name, which `replace` puts aside instead.
    """
    try:
        there = find_same(kind, destination, fingerprint)
    except Conflict:
        if not replace:
            raise
        there = None
    if there is not None:
        clear_landed(destination, fingerprint)
        return there

    def land_it() -> ArtifactRef:
        with land(destination, fingerprint) as landing:
            landing.sweep((), ())
            write(landing.tree)
            if replace and is_taken(destination):
                landing.publish_over()
            else:
                landing.publish()
        return artifact_ref(kind, destination)

    return job.write_with_room(destination, bytes_needed + SMALL_BYTES, land_it, inodes_needed=FILES)
