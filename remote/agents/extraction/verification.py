"""Verifying a store: structure, hashes and samples, all of them or some; and whether a server still captures the same."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import httpx

from remote.agents.extraction.dialects import DIALECTS
from remote.agents.extraction.requests import Captured, Requester
from remote.agents.extraction.spool import check_ready, find_waiting
from remote.agents.harness import JobContext, main
from remote.artifacts import store_check
from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.manifest import hash_file, read_manifest
from remote.artifacts.store_plan import Planned
from remote.errors import Precondition, WorkFailed
from remote.paths import resolve_path
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Note, StoreChecked
from remote.protocol.specs import Recapture, StoreVerificationSpec

_MOST_TYPICAL, _MOST_OF_A_ROW = 0.05, 0.5
"""Of a row's length: of the median row, and of any. The same prefill in another batch differs in the last bits of bfloat16, which 30 layers
make 1% of most rows and 4% of some; another layer, another norm or rows out of place differ by much of it."""

_REQUEST_TIMEOUT_S = 600.0
_SHOWN = 5


class Verification:
    """One verification; problems are collected, so that one look finds all."""

    def __init__(self, spec: StoreVerificationSpec, job: JobContext) -> None:
        self.spec = spec
        self.job = job
        self.store = StoreReader(resolve_path(job.root, spec.store))
        count = len(self.store) if spec.samples is None else spec.samples
        self.chosen = store_check.choose(count, len(self.store), spec.seed)
        self.problems: list[str] = []
        self.summary: dict[str, str | int | float | bool | None] = {}

    def run(self) -> JobResult:
        """Raises Precondition that lists what is wrong."""
        self._note(store_check.check_structure(self.store))
        self._hash()
        for done, number in enumerate(self.chosen, start=1):
            self.job.check_stop()
            self._note(store_check.check_sample(self.store[number]))
            self.job.tell(StoreChecked(what="samples", done=done, total=len(self.chosen)))
        self.summary["samples_checked"] = len(self.chosen)
        if self.spec.recapture is not None and not self.problems:
            asyncio.run(self._recapture(self.spec.recapture))
        if self.problems:
            more = len(self.problems) - _SHOWN
            shown = "; ".join(self.problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            raise Precondition(
                f"{self.spec.store} is not what it should be: {shown}",
                hint="move it away (`roost storage reclaim`) and extract it again, or import or merge it again",
            )
        return JobResult(outputs=[], summary=self.summary)

    def _note(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self.problems.append(problem)
            self.job.tell(Note(level="error", text=problem))

    def _hash(self) -> None:
        """All files, or the records and the shards that the chosen samples are in."""
        entries = everything = read_manifest(self.store.directory).files
        if self.spec.samples is not None:
            shards = {self.store.shard_of(number) for number in self.chosen}
            entries = [entry for entry in entries if not entry.name.startswith("shard-") or entry.name in shards]
        total = sum(entry.bytes for entry in entries)
        done = 0
        for entry in entries:
            self.job.check_stop()
            self._note(store_check.check_hash(self.store.directory, entry))
            done += entry.bytes
            self.job.tell(StoreChecked(what="bytes", done=done, total=total))
        left = [entry for entry in everything if entry not in entries]
        self.summary |= {"files_hashed": len(entries), "bytes_hashed": total}
        self.summary |= {"files_not_read": len(left), "bytes_not_read": sum(entry.bytes for entry in left)}

    async def _recapture(self, how: Recapture) -> None:
        """Ask a capturing server for some samples once more, and compare."""
        properties, spool = self.store.properties, Path(how.capture.spool_directory)
        engine = check_ready(spool, properties.layer_ids)
        if hash_file(Path(how.model) / "config.json") != properties.target_config_sha256:
            raise Precondition(f"the server serves {how.model}, which is not the model of the store")
        then, now = f"{properties.engine} {properties.engine_version}", f"{engine['engine']} {engine['engine_version']}"
        if then != now:
            text = f"captured with {then}, compared with {now}"
            self.job.tell(Note(level="warning", text=text))

        async def wait_for_room() -> bool:
            if find_waiting(spool) is None:
                return False
            await asyncio.to_thread(self.job.room.wait_while, lambda: find_waiting(spool))
            return True

        chosen = store_check.choose(how.samples, len(self.store), self.spec.seed)
        identical, largest, typical = 0, 0.0, 0.0
        async with httpx.AsyncClient(base_url=how.url, timeout=_REQUEST_TIMEOUT_S) as client:
            requester = Requester(
                client,
                spool,
                self.job.job_id,
                dialect=DIALECTS[engine["engine"]],
                layers=properties.layer_count,
                attempts=1,
                wait_for_room=wait_for_room,
            )
            for done, number in enumerate(chosen, start=1):
                self.job.check_stop()
                kept = self.store[number]
                captured = await requester.capture(number, Planned(kept.sample_id, kept.input_ids, kept.loss_mask))
                if not isinstance(captured, Captured):
                    raise WorkFailed(f"sample {kept.sample_id} could not be captured again: {captured.reason}")
                apart = store_check.deviation(captured.spooled.sample, kept)
                captured.path.unlink(missing_ok=True)
                identical += apart.largest == 0.0
                largest, typical = max(largest, apart.largest), max(typical, apart.typical)
                if not (apart.typical <= _MOST_TYPICAL and apart.largest <= _MOST_OF_A_ROW):
                    text = f"{apart.typical:.1%} apart from what is captured now, rows up to {apart.largest:.1%}"
                    self._note([f"sample {kept.sample_id} is {text}"])
                self.job.tell(StoreChecked(what="recaptured", done=done, total=len(chosen)))
        self.summary |= {
            "recaptured": len(chosen),
            "identical": identical,
            "largest_deviation": largest,
            "typical_deviation": typical,
        }


def work(spec: StoreVerificationSpec, job: JobContext) -> JobResult:
    """Verify as `spec` says."""
    return Verification(spec, job).run()


if __name__ == "__main__":
    main(StoreVerificationSpec, work)
