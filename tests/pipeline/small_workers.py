"""Real jobs under the real harness with trivial work, for the runner's tests: `behaviour.json` below ROOT says who misbehaves."""

import json
import time
from pathlib import Path

import msgspec

from remote.agents.harness import JobContext, Stopped, main
from remote.agents.room import Shortage, free_at
from remote.artifacts.manifest import Manifest, artifact_ref, write_manifest
from remote.errors import Precondition, WorkFailed
from remote.protocol.benchmark import BenchmarkLevel, BenchmarkReport, RequestFigures, Spread
from remote.protocol.jobs import JobResult
from remote.protocol.progress import ArmAdvanced, ExtractionAdvanced, ServerPhase, ServerReady, StepLogged
from remote.protocol.reports import ArmLevel, EvaluationReport, PromptResult
from remote.protocol.specs import (
    BenchmarkSpec,
    EvaluationSpec,
    ExtractionSpec,
    ServerSpec,
    TrainingSpec,
    VocabularySpec,
)

SPECS = (BenchmarkSpec, EvaluationSpec, ExtractionSpec, ServerSpec, TrainingSpec, VocabularySpec)
Spec = BenchmarkSpec | EvaluationSpec | ExtractionSpec | ServerSpec | TrainingSpec | VocabularySpec


def work(spec: Spec, job: JobContext) -> JobResult:  # noqa: C901 - one for each behaviour and kind of work
    behaviour = _behaviour(job)
    if behaviour == "fail":
        raise WorkFailed("the work was told to fail")
    if behaviour == "refuse":
        raise Precondition("it covers too little", hint="raise it")
    if behaviour == "hang":
        return _hang(job)
    if behaviour == "find no room":
        _wait_for_room(job)
    match spec:
        case ServerSpec():
            return _serve(job, behaviour)
        case ExtractionSpec(store=store, fingerprint=fingerprint):
            job.tell(
                ExtractionAdvanced(samples_done=3, samples_total=3, tokens_done=9, bytes_written=9, tokens_per_s=5.0)
            )
            return _publish("store", Path(store), fingerprint)
        case VocabularySpec(mapping=mapping, fingerprint=fingerprint):
            return _publish("mapping", Path(mapping), fingerprint, properties={"coverage": 0.9})
        case TrainingSpec(drafter=drafter, fingerprint=fingerprint):
            job.tell(_step())
            return _publish("drafter", Path(drafter), fingerprint)
        case EvaluationSpec():
            return _evaluate(spec, job)
        case BenchmarkSpec():
            return _measure(spec, job)


def _wait_for_room(job: JobContext) -> None:
    full = Shortage(job.root, free_at(job.root), 1 << 60, 1)
    job.room.wait_while(lambda: None if (job.root / "room").exists() else full)


def _behaviour(job: JobContext) -> str:
    path = job.root / "behaviour.json"
    told = json.loads(path.read_text()) if path.exists() else {}
    return next((told[name] for name in told if job.job_id.endswith(f"-{name}")), "")


def _hang(job: JobContext) -> JobResult:
    job.stop_requested.wait()
    raise Stopped


def _serve(job: JobContext, behaviour: str) -> JobResult:
    job.tell(ServerPhase(phase="launching", elapsed_s=0.0))
    if behaviour == "never ready":
        return JobResult()
    ready = ServerReady(
        url="http://127.0.0.1:1", engine="sglang", engine_version="0", model="target", pid=1, startup_s=0.1
    )
    job.tell(ready)
    if behaviour == "die":
        time.sleep(1.0)
        raise WorkFailed("the scheduler crashed")
    return _hang(job)


def _measure(spec: BenchmarkSpec, job: JobContext) -> JobResult:
    """As many tokens a second as the server may hold tokens; an odd number of them makes odd answers."""
    rate = float(spec.server.engine.flags.get("max-total-tokens", 100))
    prompts, repeats = spec.benchmark.prompts or 1, spec.benchmark.repeats
    requests = [
        RequestFigures(
            prompt_id=f"p-{number}",
            repeat=repeat,
            output_tokens=11,
            time_to_first_token_s=1.0,
            end_to_end_s=1.0 + 10 / rate,
            verify_calls=None,
        )
        for repeat in range(repeats)
        for number in range(prompts)
    ]
    flat = Spread(median=rate, lower=rate, upper=rate)
    level = BenchmarkLevel(
        concurrency=spec.benchmark.concurrency[0],
        requests=requests,
        decode_tokens_per_s=flat,
        output_tokens_per_s=flat,
        time_to_first_token_s=flat,
        end_to_end_s=flat,
        acceptance_length=None,
        odd=len(requests) if rate % 2 else 0,
    )
    report = BenchmarkReport(
        spec=spec,
        measured_at=1.0,
        host_name="here",
        devices=["1 x small"],
        engine="sglang",
        engine_version="0",
        server_info={},
        prompts=prompts,
        prompts_sha256="ab" * 32,
        levels=[level],
    )
    return _publish("benchmark", job.directory / "benchmark", "-", msgspec.json.encode(report), "report.json")


def _evaluate(spec: EvaluationSpec, job: JobContext) -> JobResult:
    rate, acceptance = (20.0, 1.7) if spec.arm == "drafter" else (10.0, None)
    job.tell(
        ArmAdvanced(
            arm=spec.arm, prompts_done=2, prompts_total=2, decode_tokens_per_s=rate, acceptance_length=acceptance
        )
    )
    prompts = [_answer(f"p-{number}", rate, acceptance) for number in range(2)]
    others = 1.5 if _behaviour(job) == "disturbed" else 0.1
    report = EvaluationReport(
        arm=spec.arm,
        model=spec.target_model,
        drafter="drafter" if spec.arm == "drafter" else None,
        engine="sglang",
        engine_version="0",
        dtype="float32",
        attention_backend="intel_amx",
        host_name="host",
        devices=["a processor"],
        measured_at=time.time(),
        levels=[_level(concurrency, prompts, rate, acceptance, others) for concurrency in spec.evaluation.concurrency],
        compared_outputs=0 if spec.reference is None else 2,
        divergences=[],
        fingerprint=spec.fingerprint,
        cores=2,
    )
    return _publish("evaluation", Path(spec.report), spec.fingerprint, msgspec.json.encode(report), "report.json")


def _level(
    concurrency: int, prompts: list[PromptResult], rate: float, acceptance: float | None, others: float
) -> ArmLevel:
    return ArmLevel(
        concurrency=concurrency,
        prompts=prompts,
        seconds=6 / rate,
        decode_tokens_per_s=rate,
        end_to_end_tokens_per_s=rate,
        output_tokens_per_s=rate,
        acceptance_length=acceptance,
        others_cores=others,
    )


def _answer(prompt_id: str, rate: float, acceptance: float | None) -> PromptResult:
    return PromptResult(
        prompt_id=prompt_id,
        category=None,
        input_tokens=4,
        output_ids=[1, 2, 3],
        output_text="abc",
        time_to_first_token_s=0.1,
        end_to_end_s=0.1 + 2 / rate,
        decode_tokens_per_s=rate,
        verify_calls=None if acceptance is None else 2,
        acceptance_length=acceptance,
        accepted_drafts=[],
    )


def _step() -> StepLogged:
    return StepLogged(
        step=4,
        total_steps=4,
        loss=1.0,
        accuracy=[0.5],
        learning_rate=1e-3,
        gradient_norm=1.0,
        tokens_per_s=10.0,
        input_wait_fraction=0.0,
    )


def _publish(
    kind: str,
    directory: Path,
    fingerprint: str,
    content: bytes = b"content",
    name: str = "file",
    properties: dict[str, object] | None = None,
) -> JobResult:
    directory.mkdir(parents=True)
    (directory / name).write_bytes(content)
    manifest = Manifest(
        format="test",
        version=1,
        fingerprint=fingerprint,
        inputs={},
        producer="test",
        created_at=time.time(),
        files=[],
        properties=properties or {},
    )
    write_manifest(directory, manifest, [name])
    return JobResult(outputs=[artifact_ref(kind, directory)])


if __name__ == "__main__":
    main(SPECS, work)
