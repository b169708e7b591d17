"""The evaluation agent's work: measure one arm, compare it with the other, write the report; or measure any server."""

import os
import shutil
import socket
import time
from pathlib import Path

import msgspec

from remote.agents.evaluation.benchmark import Benchmark
from remote.agents.evaluation.client import EngineClient
from remote.agents.evaluation.load import LoadByOthers
from remote.agents.evaluation.provenance import devices
from remote.agents.evaluation.report import acceptance_length, compare, decode_rate, oddity, summarise
from remote.agents.evaluation.sending import send_all
from remote.agents.harness import JobContext, main
from remote.artifacts.atomic import publish_directory, write_atomic
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.conversations import Prompt, choose_prompts, read_prompts
from remote.artifacts.manifest import Manifest, artifact_ref, hash_file, write_manifest
from remote.protocol.jobs import ArtifactRef, JobResult
from remote.protocol.progress import ArmAdvanced, Note
from remote.protocol.reports import ArmLevel, Divergence, EvaluationReport, PromptResult
from remote.protocol.specs import BenchmarkSpec, EvaluationSpec

FORMAT = "roost-evaluation"
PRODUCER = "roost evaluation 1"
REPORT_NAME = "report.json"
_FILES = 4
_SMALL_BYTES = 64 << 10


class Evaluation:
    """One arm against one server."""

    def __init__(self, spec: EvaluationSpec, job: JobContext) -> None:
        self.spec = spec
        self.job = job
        self.client = EngineClient(spec.url)
        template = ChatTemplate(Path(spec.target_model), spec.chat_template_kwargs)
        self.prompts = choose_prompts(read_prompts(Path(spec.prompts)), spec.evaluation.prompts)
        self.inputs = {prompt.prompt_id: template.prompt_ids(prompt.turns) for prompt in self.prompts}

    def run(self) -> JobResult:
        """Measure, compare, write; the client's connection is closed in any case."""
        measured_at = time.time()
        try:
            levels: list[ArmLevel] = []
            for concurrency in self.spec.evaluation.concurrency:
                levels.append(self._measure(concurrency, sum(len(level.prompts) for level in levels)))
            compared, divergences = self._compare(levels)
            report = self._report(levels, compared, divergences, measured_at)
        finally:
            self.client.close()
        reference = self._write(report)
        return JobResult(outputs=[reference], summary=_summary(report))

    def _measure(self, concurrency: int, done_before: int) -> ArmLevel:
        settings = self.spec.evaluation
        warm_up = max(settings.warmup_prompts, concurrency) if settings.warmup_prompts else 0
        send_all(self.prompts[:warm_up], concurrency, self._complete, lambda _: None, self.job.check_stop)
        self.client.forget_prefixes()
        results: list[PromptResult] = []

        def tell(result: PromptResult) -> None:
            results.append(result)
            if (odd := oddity(result.output_ids)) is not None:
                self.job.tell(Note(level="warning", text=f"the answer to prompt {result.prompt_id} is {odd}"))
            self._tell(concurrency, results, done_before)

        load, began = LoadByOthers(self.spec.server_pid), time.perf_counter()
        in_order = send_all(self.prompts, concurrency, self._complete, tell, self.job.check_stop)
        return summarise(concurrency, in_order, time.perf_counter() - began, others_cores=load.cores())

    def _complete(self, prompt: Prompt) -> PromptResult:
        input_ids = self.inputs[prompt.prompt_id]
        completion = self.client.complete(input_ids, self.spec.evaluation.max_tokens)
        result = PromptResult(
            prompt_id=prompt.prompt_id,
            category=prompt.category,
            input_tokens=len(input_ids),
            output_ids=completion.output_ids,
            output_text=completion.text,
            time_to_first_token_s=completion.time_to_first_token_s,
            end_to_end_s=completion.end_to_end_s,
            decode_tokens_per_s=None,
            verify_calls=completion.verify_calls,
            acceptance_length=None,
            accepted_drafts=completion.accepted_drafts,
        )
        return msgspec.structs.replace(
            result, decode_tokens_per_s=decode_rate([result]), acceptance_length=acceptance_length([result])
        )

    def _tell(self, concurrency: int, results: list[PromptResult], done_before: int) -> None:
        self.job.tell(
            ArmAdvanced(
                arm=self.spec.arm,
                prompts_done=done_before + len(results),
                prompts_total=len(self.prompts) * len(self.spec.evaluation.concurrency),
                decode_tokens_per_s=decode_rate(results),
                acceptance_length=acceptance_length(results),
                concurrency=concurrency,
            )
        )

    def _compare(self, levels: list[ArmLevel]) -> tuple[int, list[Divergence]]:
        if self.spec.reference is None:
            return 0, []
        other = msgspec.json.decode((Path(self.spec.reference) / REPORT_NAME).read_bytes(), type=EvaluationReport)
        others = {level.concurrency: level for level in other.levels}
        compared, divergences = 0, []
        for mine in levels:
            theirs = others[mine.concurrency]
            baseline, drafter = (mine, theirs) if self.spec.arm == "baseline" else (theirs, mine)
            count, found = compare(
                baseline,
                drafter,
                gap_at=lambda prompt_id, common: self.client.top_two_gap([*self.inputs[prompt_id], *common]),
                near_tie_logit_gap=self.spec.evaluation.near_tie_logit_gap,
            )
            compared += count
            divergences += found
        for divergence in divergences:
            self.job.tell(
                Note(level="info" if divergence.near_tie else "warning", text=_describe_divergence(divergence))
            )
        return compared, divergences

    def _report(
        self, levels: list[ArmLevel], compared: int, divergences: list[Divergence], measured_at: float
    ) -> EvaluationReport:
        info = self.client.server_info()
        return EvaluationReport(
            arm=self.spec.arm,
            model=self.spec.target_model,
            drafter=self.spec.drafter,
            engine=self.client.engine,
            engine_version=str(info.get("version", "unknown")),
            dtype=self.spec.evaluation.dtype,
            attention_backend=self.spec.evaluation.attention_backend,
            host_name=socket.gethostname(),
            devices=devices(),
            measured_at=measured_at,
            levels=levels,
            compared_outputs=compared,
            divergences=divergences,
            fingerprint=self.spec.fingerprint,
            cores=os.cpu_count(),
        )

    def _write(self, report: EvaluationReport) -> ArtifactRef:
        final = Path(self.spec.report)
        part = final.with_name(f"{final.name}.part")
        content = msgspec.json.format(msgspec.json.encode(report), indent=1)
        return self.job.write_with_room(
            final,
            len(content) + _SMALL_BYTES,
            lambda: self._publish(report, content, part),
            inodes_needed=_FILES,
            clean=lambda: shutil.rmtree(part, ignore_errors=True),
        )

    def _publish(self, report: EvaluationReport, content: bytes, part: Path) -> ArtifactRef:
        final = Path(self.spec.report)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write_atomic(part / REPORT_NAME, content)
        manifest = Manifest(
            format=FORMAT,
            version=1,
            fingerprint=self.spec.fingerprint,
            inputs={"prompts": hash_file(Path(self.spec.prompts)), "target": self.spec.target_model},
            producer=PRODUCER,
            created_at=time.time(),
            files=[],
            properties={"arm": report.arm, "decode_tokens_per_s": report.levels[0].decode_tokens_per_s},
        )
        write_manifest(part, manifest, [REPORT_NAME])
        publish_directory(part, final)
        return artifact_ref("evaluation", final)


def _summary(report: EvaluationReport) -> dict[str, str | int | float | bool | None]:
    """The figures of the first level, and of the others what a person asks for first."""
    first, *others = report.levels
    return {
        "arm": report.arm,
        "decode_tokens_per_s": first.decode_tokens_per_s,
        "end_to_end_tokens_per_s": first.end_to_end_tokens_per_s,
        "acceptance_length": first.acceptance_length,
        **{f"decode_tokens_per_s_at_{level.concurrency}": level.decode_tokens_per_s for level in others},
        "prompts": len(first.prompts),
        "divergences": len(report.divergences),
    }


def _describe_divergence(divergence: Divergence) -> str:
    kind = "a near-tie" if divergence.near_tie else "a real difference"
    return (
        f"prompt {divergence.prompt_id}, {divergence.concurrency} at a time: outputs part at token {divergence.position}, "
        f"{kind} (top-two gap {divergence.top_two_logit_gap:.2g})"
    )


def work(spec: EvaluationSpec | BenchmarkSpec, job: JobContext) -> JobResult:
    """Evaluate, or measure a server, as `spec` says."""
    return Benchmark(spec, job).run() if isinstance(spec, BenchmarkSpec) else Evaluation(spec, job).run()


if __name__ == "__main__":
    main((EvaluationSpec, BenchmarkSpec), work)
