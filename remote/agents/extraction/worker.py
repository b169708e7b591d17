"""The extraction agent's work: send every conversation once, check what comes back, keep it in the store."""

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

import httpx

from remote.agents.extraction.spool import Spooled, check_ready, find_waiting, raise_plugin_error, read_spooled
from remote.agents.harness import JobContext, Stopped, main
from remote.artifacts.chat_template import ChatTemplate, TokenizedConversation
from remote.artifacts.conversations import read_conversations
from remote.artifacts.hidden_states import Sample, StoreProperties, StoreWriter, WrittenShard
from remote.artifacts.manifest import hash_file
from remote.errors import Precondition, WorkFailed
from remote.protocol.jobs import JobResult
from remote.protocol.progress import ExtractionAdvanced, Note, ShardWritten
from remote.protocol.specs import ExtractionSpec

_REQUEST_TIMEOUT_S = 600.0
_SPOOL_TIMEOUT_S = 60.0
_SPOOL_POLL_S = 0.005
_LOOK_S = 0.5
_PROGRESS_INTERVAL_S = 1.0
_SMALL_BYTES = 64 << 10
"""More than a journal line, a header and a manifest take."""


class _Item(NamedTuple):
    sample_id: str
    tokens: TokenizedConversation


class Extraction:
    """One extraction: what is to be sent, the store that grows, and the progress told once a second."""

    def __init__(self, spec: ExtractionSpec, job: JobContext) -> None:
        self.spec = spec
        self.job = job
        self.spool = Path(spec.capture.spool_directory)
        self.template = ChatTemplate(Path(spec.target_model))
        self.engine = check_ready(self.spool, spec.capture.layer_ids)
        self.items = self._tokenize()
        self.writer: StoreWriter | None = None
        self.done = 0
        self.tokens = 0
        self.started = time.monotonic()
        self.told_at = 0.0
        self.lock = asyncio.Lock()
        self.spool_lock = asyncio.Lock()

    def _tokenize(self) -> list[_Item]:
        items: list[_Item] = []
        skipped = 0
        limit = self.spec.max_length
        for conversation in read_conversations(Path(self.spec.conversations), limit=self.spec.max_samples):
            ids, mask = self.template.tokenize(conversation.conversations, truncated=conversation.truncated)
            if any(mask[:limit]):
                items.append(_Item(conversation.id, TokenizedConversation(ids[:limit], mask[:limit])))
            else:
                skipped += 1
        if skipped:
            self.job.tell(
                Note(level="warning", text=f"{skipped} conversations have no answer within {limit} tokens: skipped")
            )
        if not items:
            raise Precondition(
                f"{self.spec.conversations} has no conversation with an answer", hint="look at its roles"
            )
        if len({item.sample_id for item in items}) != len(items):
            raise Precondition(
                f"{self.spec.conversations} has the same id twice", hint="give every line an id of its own"
            )
        return items

    async def run(self) -> JobResult:
        """Send what the store does not have yet; raises Stopped, leaving a store that can be gone on with."""
        limits = httpx.Limits(max_connections=self.spec.extraction.concurrency)
        async with httpx.AsyncClient(base_url=self.spec.url, timeout=_REQUEST_TIMEOUT_S, limits=limits) as client:
            first, *rest = self.items
            spooled = await self._fetch(client, 0, first)
            self._open_store(spooled)
            writer = self._store()
            have = writer.done_sample_ids
            self.done, self.tokens = len(have), sum(len(i.tokens.input_ids) for i in self.items if i.sample_id in have)
            if first.sample_id not in have:
                await self._keep(spooled)
            pending = [(index, item) for index, item in enumerate(rest, start=1) if item.sample_id not in have]
            try:
                await self._send_all(client, pending)
            except Stopped:
                self._tell_shard(await asyncio.to_thread(self._flush))
                raise
        return self._finish()

    async def _send_all(self, client: httpx.AsyncClient, pending: list[tuple[int, _Item]]) -> None:
        queue = iter(pending)

        async def sender() -> None:
            for index, item in queue:
                self.job.check_stop()
                await self._wait_for_spool()
                await self._keep(await self._fetch(client, index, item))

        senders = [asyncio.create_task(sender()) for _ in range(self.spec.extraction.concurrency)]
        try:
            await asyncio.gather(*senders)
        finally:
            for task in senders:
                task.cancel()
            await asyncio.gather(*senders, return_exceptions=True)

    async def _fetch(self, client: httpx.AsyncClient, index: int, item: _Item) -> Spooled:
        request_id = f"roost-{self.job.job_id}-{index}"
        body = {
            "rid": request_id,
            "input_ids": item.tokens.input_ids,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        }
        try:
            response = await client.post("/generate", json=body)
        except httpx.HTTPError as error:
            raise_plugin_error(self.spool)
            raise WorkFailed(
                f"the server did not answer sample {item.sample_id}: {error!r}", hint="see the server's log"
            ) from error
        if response.status_code != httpx.codes.OK:
            raise WorkFailed(
                f"the server refused sample {item.sample_id}: {response.status_code} {response.text[:300]}"
            )
        cached = response.json()["meta_info"]["cached_tokens"]
        if cached:
            raise WorkFailed(
                f"sample {item.sample_id}: {cached} tokens came from the prefix cache, their states are missing",
                hint="start the server with disable-radix-cache",
            )
        return await self._take(self.spool / f"{request_id}.safetensors", item)

    async def _take(self, path: Path, item: _Item) -> Spooled:
        deadline = time.monotonic() + _SPOOL_TIMEOUT_S
        look_at = time.monotonic() + _LOOK_S
        while not path.exists():
            raise_plugin_error(self.spool)
            if time.monotonic() > look_at:
                waited = await self._wait_for_spool()
                look_at = time.monotonic() + _LOOK_S
                deadline = look_at + _SPOOL_TIMEOUT_S if waited else deadline
            if time.monotonic() > deadline:
                raise WorkFailed(f"the capture plugin never wrote {path.name}", hint="see the server's log")
            await asyncio.sleep(_SPOOL_POLL_S)
        spooled = read_spooled(
            path,
            sample_id=item.sample_id,
            input_ids=item.tokens.input_ids,
            loss_mask=item.tokens.loss_mask,
            layers=len(self.spec.capture.layer_ids),
        )
        path.unlink()
        return spooled

    async def _wait_for_spool(self) -> bool:
        """Send nothing more while the server finds no room for what it captured; whether it did not."""
        if find_waiting(self.spool) is None:
            return False
        async with self.spool_lock:
            await asyncio.to_thread(self.job.room.wait_while, lambda: find_waiting(self.spool))
        return True

    def _open_store(self, first: Spooled) -> None:
        model = Path(self.spec.target_model)
        properties = StoreProperties(
            model=self.spec.target_model,
            layer_ids=self.spec.capture.layer_ids,
            hidden_size=first.sample.final_hidden_states.shape[1],
            dtype=first.dtype,
            final_norm="post_norm",
            target_config_sha256=hash_file(model / "config.json"),
            tokenizer_sha256=self.template.tokenizer_sha256,
            chat_template_sha256=self.template.sha256,
            engine=self.engine["engine"],
            engine_version=self.engine["engine_version"],
        )
        store = Path(self.spec.store)
        self.writer = self.job.write_with_room(
            store, _SMALL_BYTES, lambda: StoreWriter(store, properties, self.spec.extraction.shard_bytes)
        )

    def _store(self) -> StoreWriter:
        assert self.writer is not None, "the first sample opens the store"
        return self.writer

    def _append(self, sample: Sample) -> WrittenShard | None:
        return self._flush() if self._store().add(sample) else None

    def _flush(self) -> WrittenShard | None:
        """What is pending as a shard; on a full disk every sender waits for it in turn, and with them the server."""
        writer = self._store()
        return self.job.write_with_room(writer.directory, writer.pending_bytes + _SMALL_BYTES, writer.flush)

    async def _keep(self, spooled: Spooled) -> None:
        sample = spooled.sample
        async with self.lock:
            self._tell_shard(await asyncio.to_thread(self._append, sample))
            self.done += 1
            self.tokens += len(sample.input_ids)
        if time.monotonic() - self.told_at >= _PROGRESS_INTERVAL_S:
            self._tell()

    def _tell_shard(self, shard: WrittenShard | None) -> None:
        if shard is not None:
            self.job.tell(ShardWritten(shard=shard.name, samples=shard.samples, tokens=shard.tokens, bytes=shard.bytes))

    def _tell(self) -> None:
        self.told_at = time.monotonic()
        self.job.tell(
            ExtractionAdvanced(
                samples_done=self.done,
                samples_total=len(self.items),
                tokens_done=self.tokens,
                bytes_written=self._store().durable_bytes,
                bytes_pending=self._store().pending_bytes,
                tokens_per_s=self.tokens / max(self.told_at - self.started, 1e-9),
            )
        )

    def _finish(self) -> JobResult:
        writer = self._store()
        inputs = {"conversations": hash_file(Path(self.spec.conversations)), "target": self.spec.target_model}
        self._tell_shard(self._flush())
        reference = self.job.write_with_room(
            writer.directory, _SMALL_BYTES, lambda: writer.finish(fingerprint=self.spec.fingerprint, inputs=inputs)
        )
        self._tell()
        seconds = time.monotonic() - self.started
        return JobResult(
            outputs=[reference],
            summary={"samples": self.done, "tokens": self.tokens, "bytes": writer.durable_bytes, "seconds": seconds},
        )


def work(spec: ExtractionSpec, job: JobContext) -> JobResult:
    """Extract as `spec` says."""
    return asyncio.run(Extraction(spec, job).run())


if __name__ == "__main__":
    main(ExtractionSpec, work)
