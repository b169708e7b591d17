"""Which module does the work of which spec, with which command, and how long it may take to stop."""

import msgspec

from remote.jobs.gpu_demand import gpu_demand
from remote.jobs.log_bound import LOG_LIMIT_BYTES
from remote.protocol.mappings import MappingBuildSpec, MappingConvertSpec, MappingCoverageSpec
from remote.protocol.specs import (
    BenchmarkSpec,
    DrafterExportSpec,
    EvaluationSpec,
    ExerciseSpec,
    ExtractionSpec,
    MappingCopySpec,
    PurgeSpec,
    RecorderSpec,
    RunSpec,
    ServerSpec,
    Spec,
    StoreExportSpec,
    StoreImportSpec,
    StoreMergeSpec,
    StoreVerificationSpec,
    TrainingSpec,
    TuningSpec,
    VocabularySpec,
)


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The command of a job, the seconds from SIGTERM to SIGKILL when it is stopped, how much log may lie on disk, its GPUs."""

    agent: str
    argv: list[str]
    stop_grace_s: float
    environment: dict[str, str] = {}
    log_limit_bytes: int = LOG_LIMIT_BYTES
    gpus: int = 0
    gpu_indices: tuple[int, ...] = ()


_WORKERS: dict[type, tuple[str, str, float]] = {
    ServerSpec: ("server", "remote.agents.server.worker", 60.0),
    ExtractionSpec: ("extraction", "remote.agents.extraction.worker", 30.0),
    StoreVerificationSpec: ("verification", "remote.agents.extraction.verification", 30.0),
    StoreExportSpec: ("conversion", "remote.agents.extraction.conversion", 30.0),
    StoreMergeSpec: ("merge", "remote.agents.extraction.merging", 30.0),
    StoreImportSpec: ("conversion", "remote.agents.extraction.conversion", 30.0),
    VocabularySpec: ("vocabulary", "remote.agents.vocabulary.worker", 30.0),
    MappingCopySpec: ("mapping_copy", "remote.agents.vocabulary.worker", 30.0),
    MappingBuildSpec: ("mapping_build", "remote.agents.vocabulary.worker", 30.0),
    MappingConvertSpec: ("mapping_convert", "remote.agents.vocabulary.worker", 30.0),
    MappingCoverageSpec: ("mapping_coverage", "remote.agents.vocabulary.worker", 30.0),
    DrafterExportSpec: ("export", "remote.agents.training.exporting", 30.0),
    TrainingSpec: ("training", "remote.agents.training.worker", 30.0),
    EvaluationSpec: ("evaluation", "remote.agents.evaluation.worker", 30.0),
    BenchmarkSpec: ("benchmark", "remote.agents.evaluation.worker", 30.0),
    PurgeSpec: ("reclaim", "remote.agents.reclaim.worker", 30.0),
    RecorderSpec: ("recorder", "remote.recorder.worker", 30.0),
    ExerciseSpec: ("exercise", "remote.agents.exercise.worker", 30.0),
    RunSpec: ("run", "remote.pipeline.runner", 60.0),
    TuningSpec: ("tuning", "remote.pipeline.tuner", 60.0),
}


def plan(spec: Spec, python: str) -> LaunchPlan:
    """How `spec` is carried out by the interpreter `python`; raises UsageError where its options contradict each other."""
    agent, module, stop_grace_s = _WORKERS[type(spec)]
    demand = gpu_demand(spec)
    return LaunchPlan(
        agent=agent,
        argv=[python, "-m", module],
        stop_grace_s=stop_grace_s,
        gpus=demand.count,
        gpu_indices=demand.indices,
    )


def agent_of(spec: Spec) -> str:
    """The name of the agent that carries out `spec`."""
    return _WORKERS[type(spec)][0]


def work_environment(*, root: str, directory: str, cookie: str, release: str) -> dict[str, str]:
    """What every job finds in its environment, laid over the one that the link was started with.

    `SPT_NOENV` keeps SGLang's setproctitle from wiping the environment that the cookie lives in.
    """
    return {
        "ROOST_JOB_DIR": directory,
        "ROOST_ROOT": root,
        "ROOST_JOB": cookie,
        "SPT_NOENV": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": release,
    }
