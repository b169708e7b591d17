"""A server's speed on chat prompts, with several numbers of requests at a time."""

import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from remote.agents.evaluation.client import Completion, EngineClient
from remote.agents.evaluation.provenance import devices
from remote.agents.evaluation.report import oddity
from remote.agents.evaluation.sending import send_all
from remote.agents.harness import JobContext
from remote.artifacts.atomic import write_atomic
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.conversations import Prompt, choose_prompts, read_prompts
from remote.artifacts.manifest import Manifest, artifact_ref, hash_file, write_manifest
from remote.errors import Precondition, WorkFailed
from remote.paths import resolve_path
from remote.protocol.benchmark import MOST_REQUESTS, BenchmarkLevel, BenchmarkReport, RequestFigures, Spread
from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.jobs import ArtifactRef, JobResult
from remote.protocol.progress import BenchmarkAdvanced, Note
from remote.protocol.specs import BenchmarkSpec

FORMAT = "roost-benchmark"
PRODUCER = "roost benchmark 1"
REPORT_NAME = "report.json"
DIRECTORY_NAME = "benchmark"

_TOLD = (
    "attention_backend",
    "chunked_prefill_size",
    "context_length",
    "dtype",
    "kv_cache_dtype",
    "max_running_requests",
    "max_total_num_tokens",
    "mem_fraction_static",
    "quantization",
    "speculative_algorithm",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "tp_size",
)
"""What speed depends on and an engine may choose by itself, by SGLang's names in `/server_info`."""

_REQUEST_BYTES = 200
"""Of a request in a report at most, its prompt's id apart."""
_SMALL_BYTES = 64 << 10
_FILES = 4


class Answer(NamedTuple):
    """A completion of a prompt."""

    prompt: Prompt
    completion: Completion


class Repeat(NamedTuple):
    """All prompts once at one level, and the seconds from the first request to the last token."""

    answers: list[Answer]
    seconds: float

    @property
    def output_tokens_per_s(self) -> float:
        """Of the whole server."""
        tokens = sum(len(answer.completion.output_ids) for answer in self.answers)
        return tokens / self.seconds if self.seconds > 0 else 0.0


class Benchmark:
    """One measurement of one server."""

    def __init__(self, spec: BenchmarkSpec, job: JobContext) -> None:
        self._spec = spec
        self._settings = spec.benchmark
        self._job = job
        template = ChatTemplate(Path(spec.server.model), spec.server.chat_template_kwargs)
        self._file = resolve_path(job.root, spec.prompts)
        prompts = read_prompts(self._file)
        self._prompts = choose_prompts(prompts, self._settings.prompts or len(prompts))
        self._inputs = {prompt.prompt_id: template.prompt_ids(prompt.turns) for prompt in self._prompts}
        self._total = len(self._prompts) * self._settings.repeats * len(self._settings.concurrency)
        if self._total > MOST_REQUESTS:
            raise Precondition(
                f"{len(self._prompts)} prompts, {self._settings.repeats} repeats and "
                f"{len(self._settings.concurrency)} levels are {self._total} requests; at most {MOST_REQUESTS} are measured",
                hint="ask for fewer prompts, repeats or levels",
            )
        ids = sum(len(msgspec.json.encode(prompt.prompt_id)) for prompt in self._prompts)
        told = self._total * _REQUEST_BYTES + ids * self._total // len(self._prompts)
        if told > MAX_LINE_BYTES:
            raise Precondition(
                f"the ids of the prompts in {self._file} are so long that the report of {self._total} requests would take "
                f"{told >> 10} KiB; at most {MAX_LINE_BYTES >> 10} KiB can be told",
                hint="give the prompts shorter ids, or ask for fewer prompts, repeats or levels",
            )
        self._client = EngineClient(spec.url)
        self._done = 0

    def run(self) -> JobResult:
        """Measure and write; the client's connections are closed in any case. Raises WorkFailed, Stopped."""
        measured_at = time.time()
        try:
            info = self._client.server_info()  # first: what will not say what it is need not be measured
            levels = [self._measure(concurrency) for concurrency in self._settings.concurrency]
            report = self._report(levels, measured_at, info)
        finally:
            self._client.close()
        return JobResult(outputs=[self._write(report)], summary=_summary(levels))

    def _measure(self, concurrency: int) -> BenchmarkLevel:
        warm_up = max(self._settings.warmup_prompts, concurrency) if self._settings.warmup_prompts else 0
        send_all(self._prompts[:warm_up], concurrency, self._complete, lambda _: None, self._job.check_stop)
        repeats = [self._repeat(concurrency) for _ in range(self._settings.repeats)]
        level = summarise(concurrency, repeats)
        if level.odd:
            text = (
                f"{level.odd} of {len(level.requests)} answers, {concurrency} at a time, are empty or repeat themselves"
            )
            self._job.tell(Note(level="warning", text=text))
        return level

    def _repeat(self, concurrency: int) -> Repeat:
        """Without what the cache knows of the prompts: a repeat is to be as the first time."""
        self._client.forget_prefixes()
        began, tokens = time.perf_counter(), 0

        def tell(answer: Answer) -> None:
            nonlocal tokens
            self._done += 1
            tokens += len(answer.completion.output_ids)
            self._job.tell(
                BenchmarkAdvanced(
                    concurrency=concurrency,
                    requests_done=self._done,
                    requests_total=self._total,
                    output_tokens_per_s=tokens / (time.perf_counter() - began),
                )
            )

        answers = send_all(self._prompts, concurrency, self._complete, tell, self._job.check_stop)
        return Repeat(answers, time.perf_counter() - began)

    def _complete(self, prompt: Prompt) -> Answer:
        try:
            return Answer(prompt, self._client.complete(self._inputs[prompt.prompt_id], self._settings.max_tokens))
        except WorkFailed as error:
            known = f"{prompt.prompt_id[:100]!r}, of {len(self._inputs[prompt.prompt_id])} tokens"
            raise WorkFailed(f"prompt {known}: {error.info.message}", hint=error.info.hint) from error

    def _report(self, levels: list[BenchmarkLevel], measured_at: float, info: dict[str, Any]) -> BenchmarkReport:
        return BenchmarkReport(
            spec=self._spec,
            measured_at=measured_at,
            host_name=socket.gethostname(),
            devices=devices(),
            engine=self._client.engine,
            engine_version=str(info.get("version", "unknown")),
            server_info={name: str(info[name]) for name in _TOLD if info.get(name) is not None},
            prompts=len(self._prompts),
            prompts_sha256=hash_file(self._file),
            levels=levels,
        )

    def _write(self, report: BenchmarkReport) -> ArtifactRef:
        directory = self._job.directory / DIRECTORY_NAME
        content = msgspec.json.format(msgspec.json.encode(report), indent=1)

        def write() -> ArtifactRef:
            directory.mkdir(exist_ok=True)
            write_atomic(directory / REPORT_NAME, content)
            manifest = Manifest(
                format=FORMAT,
                version=1,
                fingerprint=report.prompts_sha256,
                inputs={"prompts": report.prompts_sha256, "target": report.spec.server.model},
                producer=PRODUCER,
                created_at=report.measured_at,
                files=[],
                properties={"server_job_id": report.spec.server_job_id},
            )
            write_manifest(directory, manifest, [REPORT_NAME])
            return artifact_ref("benchmark", directory)

        return self._job.write_with_room(directory, len(content) + _SMALL_BYTES, write, inodes_needed=_FILES)


def summarise(concurrency: int, repeats: Sequence[Repeat]) -> BenchmarkLevel:
    """The figures of one level; `repeats` holds at least one, with at least one answer."""
    requests = [
        RequestFigures(
            prompt_id=prompt.prompt_id,
            repeat=number,
            output_tokens=len(completion.output_ids),
            time_to_first_token_s=completion.time_to_first_token_s,
            end_to_end_s=completion.end_to_end_s,
            verify_calls=completion.verify_calls,
        )
        for number, repeat in enumerate(repeats)
        for prompt, completion in repeat.answers
    ]
    verified = [request for request in requests if request.verify_calls]
    calls = sum(request.verify_calls or 0 for request in verified)
    rates = [rate for request in requests if (rate := _decode_rate(request)) is not None]
    return BenchmarkLevel(
        concurrency=concurrency,
        requests=requests,
        decode_tokens_per_s=spread(rates) if rates else None,
        output_tokens_per_s=spread([repeat.output_tokens_per_s for repeat in repeats]),
        time_to_first_token_s=spread([request.time_to_first_token_s for request in requests]),
        end_to_end_s=spread([request.end_to_end_s for request in requests]),
        acceptance_length=sum(request.output_tokens - 1 for request in verified) / calls if calls else None,
        odd=sum(oddity(answer.completion.output_ids) is not None for repeat in repeats for answer in repeat.answers),
    )


def _decode_rate(request: RequestFigures) -> float | None:
    """None for an answer of one token, which has no time between tokens."""
    seconds = request.end_to_end_s - request.time_to_first_token_s
    return (request.output_tokens - 1) / seconds if request.output_tokens > 1 and seconds > 0 else None


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles (`statistics.quantiles`, inclusive) of one value or more."""
    if len(values) == 1:
        return Spread(median=values[0], lower=values[0], upper=values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median=median, lower=lower, upper=upper)


def _summary(levels: Sequence[BenchmarkLevel]) -> dict[str, str | int | float | bool | None]:
    summary: dict[str, str | int | float | bool | None] = {}
    for level in levels:
        decode = level.decode_tokens_per_s
        summary[f"decode_tokens_per_s_at_{level.concurrency}"] = None if decode is None else decode.median
        summary[f"output_tokens_per_s_at_{level.concurrency}"] = level.output_tokens_per_s.median
    return summary | {"acceptance_length": levels[0].acceptance_length}
