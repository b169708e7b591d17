"""The extraction agent's work: send every conversation once, check what comes back, keep it in the store."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path

import httpx

from remote.agents.extraction.dialects import DIALECTS
from remote.agents.extraction.filling import DiskPlan, Filling, allowed_quarantine, describe_plan
from remote.agents.extraction.requests import Captured, Requester
from remote.agents.extraction.samples import Samples, read_samples
from remote.agents.extraction.spool import check_ready, find_waiting
from remote.agents.harness import JobContext, main
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.hidden_states import StoreProperties
from remote.artifacts.manifest import hash_file
from remote.artifacts.quarantine import Quarantined, count_reasons
from remote.artifacts.store_journal import read_begun
from remote.artifacts.store_plan import Planned
from remote.artifacts.target_tokens import target_vocab_size
from remote.errors import WorkFailed
from remote.protocol.jobs import JobResult
from remote.protocol.progress import ExtractionAdvanced, Note
from remote.protocol.run import Dtype
from remote.protocol.specs import ExtractionSpec

_REQUEST_TIMEOUT_S = 600.0
_PROGRESS_INTERVAL_S = 1.0
_RATE_WINDOW_S = 60.0
_AHEAD = 2
"""Samples under way or waiting for their turn, for each request at a time: a long one must not leave the server idle."""


class Extraction:
    """One extraction: what is to be sent, the store that grows in the plan's order, and the progress told once a second."""

    def __init__(self, spec: ExtractionSpec, job: JobContext) -> None:
        self.spec = spec
        self.job = job
        self.store = Path(spec.store)
        self.spool = Path(spec.capture.spool_directory)
        self.template = ChatTemplate(Path(spec.target_model), spec.chat_template_kwargs)
        self.engine = check_ready(self.spool, spec.capture.layer_ids)
        self.samples = self._read()
        self.filling: Filling | None = None
        self.unfit = list(self.samples.unfit)
        self.started = time.monotonic()
        self.told_at = 0.0
        self.advances: deque[tuple[float, int]] = deque([(self.started, 0)])
        self.tokens = 0
        self.bytes_total = 0
        self.spool_lock = asyncio.Lock()

    def _read(self) -> Samples:
        spec = self.spec
        samples = read_samples(
            Path(spec.conversations),
            self.template,
            vocab_size=target_vocab_size(Path(spec.target_model)),
            max_samples=spec.max_samples,
            max_length=spec.max_length,
            part=spec.part,
        )
        if samples.unfit:
            first = samples.unfit[0]
            text = f"{len(samples.unfit)} conversations cannot be used; {first.sample_id}: {first.reason}"
            self.job.tell(Note(level="warning", text=text))
        return samples

    async def run(self) -> JobResult:
        """Send what the store does not have yet; raises Stopped, leaving a store that can be gone on with."""
        begun = read_begun(self.store)
        if begun is not None:
            await asyncio.to_thread(self._open_store, begun.properties.hidden_size, begun.properties.dtype)
        limits = httpx.Limits(max_connections=self.spec.extraction.concurrency)
        async with httpx.AsyncClient(base_url=self.spec.url, timeout=_REQUEST_TIMEOUT_S, limits=limits) as client:
            try:
                async with aclosing(self._captured(self._requester(client))) as captured:
                    async for position, outcome in captured:
                        await asyncio.to_thread(self._take, position, outcome)
            except BaseException:
                if self.filling is not None:
                    with suppress(OSError):
                        self.filling.writer.suspend()
                raise
        return self._finish()

    def _requester(self, client: httpx.AsyncClient) -> Requester:
        return Requester(
            client,
            self.spool,
            self.job.job_id,
            dialect=DIALECTS[self.engine["engine"]],
            layers=len(self.spec.capture.layer_ids),
            attempts=self.spec.extraction.attempts,
            wait_for_room=self._wait_for_spool,
        )

    async def _captured(self, requester: Requester) -> AsyncGenerator[tuple[int, Captured | Quarantined], None]:
        """What became of every sample that is still to come, in the plan's order, several under way at a time."""
        concurrency = self.spec.extraction.concurrency
        slots = asyncio.Semaphore(concurrency)

        async def capture(position: int, item: Planned) -> Captured | Quarantined:
            async with slots:
                self.job.check_stop()
                return await requester.capture(position, item)

        under_way: deque[tuple[int, asyncio.Task[Captured | Quarantined]]] = deque()
        try:
            for position, item in self._to_come():
                under_way.append((position, asyncio.create_task(capture(position, item))))
                if len(under_way) >= _AHEAD * concurrency:
                    first, task = under_way.popleft()
                    yield first, await self._unless_stopped(task)
            while under_way:
                first, task = under_way.popleft()
                yield first, await self._unless_stopped(task)
        finally:
            for _, task in under_way:
                task.cancel()
            await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)

    async def _unless_stopped(self, task: "asyncio.Task[Captured | Quarantined]") -> Captured | Quarantined:
        try:
            self.job.check_stop()
            return await task
        finally:
            task.cancel()

    def _to_come(self) -> list[tuple[int, Planned]]:
        start = 0 if self.filling is None else self.filling.writer.position
        out = set() if self.filling is None else {entry.sample_id for entry in self.filling.writer.quarantined}
        plan = self.samples.plan
        return [(place, plan[place]) for place in range(start, len(plan)) if plan[place].sample_id not in out]

    def _take(self, position: int, outcome: Captured | Quarantined) -> None:
        """The next sample into the store, or on record as one that is not in it."""
        if isinstance(outcome, Quarantined):
            if self.filling is None:  # the store is opened by the first sample that says of what type it is
                self.unfit.append(outcome)
                refused = self.unfit[len(self.samples.unfit) :]
                if len(refused) > allowed_quarantine(self.spec.extraction, len(self.samples.plan)):
                    raise WorkFailed(
                        f"sample {outcome.sample_id}: {outcome.reason}; not one of {len(refused)} samples could be had",
                        hint="see the server's log",
                    )
            else:
                self.filling.leave_out([outcome])
        else:
            sample = outcome.spooled.sample
            if self.filling is None:
                self._open_store(sample.final_hidden_states.shape[1], outcome.spooled.dtype)
            self._filling().keep(sample)
            outcome.path.unlink(missing_ok=True)
            self.tokens += len(self.samples.plan[position].input_ids)
        if self.filling is not None and time.monotonic() - self.told_at >= _PROGRESS_INTERVAL_S:
            self._tell()

    async def _wait_for_spool(self) -> bool:
        """Send nothing more while the server finds no room for what it captured; whether it did not."""
        if find_waiting(self.spool) is None:
            return False
        async with self.spool_lock:
            await asyncio.to_thread(self.job.room.wait_while, lambda: find_waiting(self.spool))
        return True

    def _open_store(self, hidden_size: int, dtype: Dtype) -> None:
        model = Path(self.spec.target_model)
        properties = StoreProperties(
            model=self.spec.target_model,
            model_revision=self.spec.target_revision,
            layer_ids=self.spec.capture.layer_ids,
            hidden_size=hidden_size,
            dtype=dtype,
            final_norm="post_norm",
            target_config_sha256=hash_file(model / "config.json"),
            tokenizer_sha256=self.template.tokenizer_sha256,
            chat_template_sha256=self.template.sha256,
            engine=self.engine["engine"],
            engine_version=self.engine["engine_version"],
        )
        config, samples = self.spec.extraction, self.samples
        disk = DiskPlan(self.store, samples.plan, properties, config.shard_bytes)
        self.bytes_total = disk.bytes_total
        self.job.tell(describe_plan(samples, disk, self.template.decode, keep_free=config.keep_free_bytes))
        if config.when_short == "refuse":
            disk.check(config.keep_free_bytes)
        self.filling = Filling(self.job, self.store, properties, samples.plan, config)
        self.filling.leave_out(samples.unfit, within_budget=False)
        self.filling.leave_out(self.unfit[len(samples.unfit) :])

    def _filling(self) -> Filling:
        assert self.filling is not None, "the first sample opens the store"
        return self.filling

    def _tell(self) -> None:
        filling = self._filling()
        self.told_at = time.monotonic()
        kept = filling.writer.written
        tokens, total = sum(len(item.input_ids) for item in kept), self.samples.tokens - filling.tokens_left_out
        rate = self._rate()
        self.job.tell(
            ExtractionAdvanced(
                samples_done=len(kept),
                samples_total=len(self.samples.plan) - filling.quarantined,
                tokens_done=tokens,
                bytes_written=filling.writer.durable_bytes,
                bytes_pending=filling.writer.pending_bytes,
                tokens_per_s=rate,
                tokens_total=total,
                bytes_total=self.bytes_total,
                quarantined=len(filling.writer.quarantined),
                eta_s=(total - tokens) / rate if rate > 0 else None,
                reasons=count_reasons(filling.writer.quarantined),
            )
        )

    def _rate(self) -> float:
        """Tokens a second over the last minute."""
        self.advances.append((self.told_at, self.tokens))
        while len(self.advances) > 2 and self.told_at - self.advances[0][0] > _RATE_WINDOW_S:
            self.advances.popleft()
        began, before = self.advances[0]
        return (self.tokens - before) / max(self.told_at - began, 1e-9)

    def _finish(self) -> JobResult:
        filling = self._filling()
        inputs = {"conversations": hash_file(Path(self.spec.conversations)), "target": self.spec.target_model}
        if (part := self.spec.part) is not None:
            inputs |= {"part": f"{part.number}/{part.of}", "whole": part.whole}
        reference = filling.finish(self.spec.fingerprint, inputs)
        self._tell()
        kept = filling.writer.written
        return JobResult(
            outputs=[reference],
            summary={
                "samples": len(kept),
                "tokens": sum(len(item.input_ids) for item in kept),
                "bytes": filling.writer.durable_bytes,
                "quarantined": len(filling.writer.quarantined),
                "seconds": time.monotonic() - self.started,
            },
        )


def work(spec: ExtractionSpec, job: JobContext) -> JobResult:
    """Extract as `spec` says."""
    return asyncio.run(Extraction(spec, job).run())


if __name__ == "__main__":
    main(ExtractionSpec, work)
