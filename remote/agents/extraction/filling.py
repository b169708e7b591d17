"""Filling a store on a disk that may be full: the plan before the first byte, shard after shard, and what was left out."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from remote.agents.extraction.samples import Samples, show_sample
from remote.agents.harness import JobContext
from remote.agents.room import free_at
from remote.artifacts.hidden_states import Sample, StoreProperties
from remote.artifacts.manifest import MANIFEST_NAME
from remote.artifacts.quarantine import Quarantined
from remote.artifacts.store_journal import read_begun
from remote.artifacts.store_plan import Planned, planned_shards
from remote.artifacts.store_writer import StoreWriter
from remote.errors import Precondition, WorkFailed
from remote.protocol.jobs import ArtifactRef
from remote.protocol.progress import ExtractionPlanned, SampleQuarantined, ShardWritten
from remote.protocol.run import ExtractionConfig
from remote.telemetry.figures import bytes_text

_SMALL_BYTES = 64 << 10
"""More than a journal line or the small records take."""
_BYTES_OF_RECORDS_PER_SAMPLE = 64
"""A sample's id in the journal, roughly."""
_NAMED = 20
"""Conversations that a plan names, of those that cannot be used."""
_SMALL_FILES = 6
"""The directory, the journal, the quarantine, the manifest, what it was begun with, and one that takes another's place."""


class DiskPlan:
    """What a store will still write, to the byte of its shards, and what its disk has."""

    def __init__(self, store: Path, plan: Sequence[Planned], properties: StoreProperties, shard_bytes: int) -> None:
        begun = read_begun(store)
        sizes = planned_shards(
            [len(item.input_ids) for item in plan], properties, shard_bytes if begun is None else begun.shard_bytes
        )
        records = _SMALL_BYTES + _BYTES_OF_RECORDS_PER_SAMPLE * len(plan)
        there = [path for path in store.glob("shard-*") if path.is_file()] if store.is_dir() else []
        self.store = store
        self.shards = len(sizes)
        self.bytes_total = sum(sizes) + records
        self.bytes_needed = max(0, self.bytes_total - sum(path.stat().st_blocks * 512 for path in there))
        self.inodes_needed = max(0, self.shards - len(there)) + _SMALL_FILES
        self.free = free_at(store)

    def check(self, keep_free: int) -> None:
        """Raise Precondition when it does not fit."""
        free = self.free
        if free.bytes < self.bytes_needed + keep_free:
            kept = f", of which {bytes_text(keep_free)} are to stay free" if keep_free else ""
            raise Precondition(
                f"the store needs {bytes_text(self.bytes_needed)} more, but the disk of {self.store} has "
                f"{bytes_text(free.bytes)}{kept}",
                hint="free space there, name another run directory, lower data.max_samples, "
                'or set extraction.when_short to "wait"',
            )
        if free.inodes is not None and free.inodes < self.inodes_needed:
            raise Precondition(
                f"the store needs {self.inodes_needed:,} files more, but the disk of {self.store} has room for {free.inodes:,}",
                hint="remove files there, or raise extraction.shard_bytes",
            )


def describe_plan(
    samples: Samples, disk: DiskPlan, decode: Callable[[list[int]], str], *, keep_free: int
) -> ExtractionPlanned:
    """What is to be extracted, how much it takes of a disk that is to keep so many bytes free, and a sample from the middle to look at."""
    shown = samples.plan[len(samples.plan) // 2]
    return ExtractionPlanned(
        samples=len(samples.plan),
        tokens=samples.tokens,
        loss_tokens=samples.loss_tokens,
        shards=disk.shards,
        bytes_total=disk.bytes_total,
        bytes_needed=disk.bytes_needed,
        inodes_needed=disk.inodes_needed,
        bytes_free=disk.free.bytes,
        inodes_free=disk.free.inodes,
        unfit=len(samples.unfit),
        unfit_samples=[SampleQuarantined(sample_id=one.sample_id, reason=one.reason) for one in samples.unfit[:_NAMED]],
        cut=samples.cut,
        keep_free_bytes=keep_free,
        sample_id=shown.sample_id,
        sample_text=show_sample(shown, decode),
    )


def allowed_quarantine(config: ExtractionConfig, samples: int) -> int:
    """How many of so many samples may be quarantined while extracting."""
    return max(1, math.floor(config.quarantine_share * samples))


class Filling:
    """A store that is being filled in the order of its plan; what finds no room pauses the job."""

    def __init__(
        self,
        job: JobContext,
        store: Path,
        properties: StoreProperties,
        plan: Sequence[Planned],
        config: ExtractionConfig,
    ) -> None:
        self._job = job
        self._config = config
        self._allowed = allowed_quarantine(config, len(plan))
        self.writer = job.write_with_room(
            store, _SMALL_BYTES, lambda: StoreWriter(store, properties, plan, config.shard_bytes)
        )
        self._planned = {item.sample_id: len(item.input_ids) for item in plan}
        if self.writer.shard_is_whole:
            self._seal()

    @property
    def quarantined(self) -> int:
        """How many samples of the plan are left out."""
        return sum(entry.sample_id in self._planned for entry in self.writer.quarantined)

    @property
    def tokens_left_out(self) -> int:
        """The tokens of those."""
        return sum(self._planned.get(entry.sample_id, 0) for entry in self.writer.quarantined)

    def keep(self, sample: Sample) -> None:
        """Write the next sample. Raises Stopped when a stop is asked for while there is no room."""
        writer = self.writer
        if not writer.shard_is_open:
            needed = writer.next_shard_bytes + self._config.keep_free_bytes
            self._job.write_with_room(writer.directory, needed, writer.open_shard)
        if writer.is_reserved:
            writer.write(sample)
        else:
            self._job.write_with_room(writer.directory, sample.nbytes, lambda: writer.write(sample))
        if writer.shard_is_whole:
            self._seal()

    def leave_out(self, entries: Sequence[Quarantined], *, within_budget: bool = True) -> None:
        """Quarantine samples; raises WorkFailed when that is more than the extraction may leave out."""
        known = {entry.sample_id for entry in self.writer.quarantined}
        new = [entry for entry in entries if entry.sample_id not in known]
        if within_budget and self.quarantined + len(new) > self._allowed:
            raise WorkFailed(
                f"sample {new[0].sample_id}: {new[0].reason}; "
                f"{self.quarantined} samples are quarantined already, more than {self._allowed} are not allowed",
                hint="see the server's log; extraction.quarantine_share allows more",
            )
        writer = self.writer
        self._job.write_with_room(writer.directory, _SMALL_BYTES, lambda: writer.leave_out(entries))
        for entry in new:
            self._job.tell(SampleQuarantined(sample_id=entry.sample_id, reason=entry.reason))
        if writer.shard_is_whole:
            self._seal()

    def _seal(self) -> None:
        writer = self.writer
        shard = self._job.write_with_room(writer.directory, None, writer.seal)
        self._job.tell(ShardWritten(shard=shard.name, samples=shard.samples, tokens=shard.tokens, bytes=shard.bytes))

    def finish(self, fingerprint: str, inputs: dict[str, str]) -> ArtifactRef:
        """Write the manifest."""
        writer = self.writer
        return self._job.write_with_room(
            writer.directory / MANIFEST_NAME,
            _SMALL_BYTES,
            lambda: writer.finish(fingerprint=fingerprint, inputs=inputs),
        )
