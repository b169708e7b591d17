"""The evaluation agent's work: measure one arm, compare it with the other, write the report."""

import shutil
import time
from pathlib import Path

import msgspec

from remote.agents.evaluation.client import Completion, EngineClient
from remote.agents.evaluation.report import acceptance_length, compare, decode_rate, end_to_end_rate, oddity
from remote.agents.harness import JobContext, main
from remote.artifacts.atomic import publish_directory, write_atomic
from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.conversations import read_prompts
from remote.artifacts.manifest import Manifest, artifact_ref, hash_file, write_manifest
from remote.protocol.jobs import ArtifactRef, JobResult
from remote.protocol.progress import ArmAdvanced, Note
from remote.protocol.reports import Divergence, EvaluationReport, PromptResult
from remote.protocol.specs import EvaluationSpec

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
        template = ChatTemplate(Path(spec.target_model))
        prompts = read_prompts(Path(spec.prompts), limit=spec.evaluation.prompts)
        self.inputs = {prompt.prompt_id: template.prompt_ids(prompt.turns) for prompt in prompts}

    def run(self) -> JobResult:
        """Measure, compare, write; the client's connection is closed in any case."""
        try:
            results = self._measure()
            compared, divergences = self._compare(results)
            report = self._report(results, compared, divergences)
        finally:
            self.client.close()
        reference = self._write(report)
        return JobResult(
            outputs=[reference],
            summary={
                "arm": report.arm,
                "decode_tokens_per_s": report.decode_tokens_per_s,
                "end_to_end_tokens_per_s": report.end_to_end_tokens_per_s,
                "acceptance_length": report.acceptance_length,
                "prompts": len(results),
                "divergences": len(divergences),
            },
        )

    def _measure(self) -> list[PromptResult]:
        settings = self.spec.evaluation
        for input_ids in list(self.inputs.values())[: settings.warmup_prompts]:
            self.job.check_stop()
            self.client.complete(input_ids, settings.max_tokens)
        results: list[PromptResult] = []
        for prompt_id, input_ids in self.inputs.items():
            self.job.check_stop()
            results.append(_result(prompt_id, self.client.complete(input_ids, settings.max_tokens)))
            if (odd := oddity(results[-1].output_ids)) is not None:
                self.job.tell(Note(level="warning", text=f"the answer to prompt {prompt_id} is {odd}"))
            self._tell(results)
        return results

    def _tell(self, results: list[PromptResult]) -> None:
        self.job.tell(
            ArmAdvanced(
                arm=self.spec.arm,
                prompts_done=len(results),
                prompts_total=len(self.inputs),
                decode_tokens_per_s=decode_rate(results),
                acceptance_length=acceptance_length(results),
            )
        )

    def _compare(self, results: list[PromptResult]) -> tuple[int, list[Divergence]]:
        if self.spec.reference is None:
            return 0, []
        other = msgspec.json.decode((Path(self.spec.reference) / REPORT_NAME).read_bytes(), type=EvaluationReport)
        mine_is_baseline = self.spec.arm == "baseline"
        compared, divergences = compare(
            results if mine_is_baseline else other.prompts,
            other.prompts if mine_is_baseline else results,
            gap_at=lambda prompt_id, common: self.client.top_two_gap([*self.inputs[prompt_id], *common]),
            near_tie_logit_gap=self.spec.evaluation.near_tie_logit_gap,
        )
        for divergence in divergences:
            kind = "a near-tie" if divergence.near_tie else "a real difference"
            text = (
                f"prompt {divergence.prompt_id}: outputs part at token {divergence.position}, {kind} "
                f"(top-two gap {divergence.top_two_logit_gap:.2g})"
            )
            self.job.tell(Note(level="info" if divergence.near_tie else "warning", text=text))
        return compared, divergences

    def _report(self, results: list[PromptResult], compared: int, divergences: list[Divergence]) -> EvaluationReport:
        info = self.client.server_info()
        return EvaluationReport(
            arm=self.spec.arm,
            model=self.spec.target_model,
            drafter=self.spec.drafter,
            engine=self.client.engine,
            engine_version=str(info.get("version", "unknown")),
            dtype=self.spec.evaluation.dtype,
            attention_backend=self.spec.evaluation.attention_backend,
            prompts=results,
            decode_tokens_per_s=decode_rate(results),
            end_to_end_tokens_per_s=end_to_end_rate(results),
            acceptance_length=acceptance_length(results),
            compared_prompts=compared,
            divergences=divergences,
            fingerprint=self.spec.fingerprint,
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
            properties={"arm": report.arm, "decode_tokens_per_s": report.decode_tokens_per_s},
        )
        write_manifest(part, manifest, [REPORT_NAME])
        publish_directory(part, final)
        return artifact_ref("evaluation", final)


def _result(prompt_id: str, completion: Completion) -> PromptResult:
    result = PromptResult(
        prompt_id=prompt_id,
        output_ids=completion.output_ids,
        output_text=completion.text,
        time_to_first_token_s=completion.time_to_first_token_s,
        end_to_end_s=completion.end_to_end_s,
        decode_tokens_per_s=0.0,
        verify_calls=completion.verify_calls,
        acceptance_length=None,
    )
    return msgspec.structs.replace(
        result, decode_tokens_per_s=decode_rate([result]), acceptance_length=acceptance_length([result])
    )


def work(spec: EvaluationSpec, job: JobContext) -> JobResult:
    """Evaluate as `spec` says."""
    return Evaluation(spec, job).run()


if __name__ == "__main__":
    main(EvaluationSpec, work)
