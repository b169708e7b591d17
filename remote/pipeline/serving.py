"""One server of a run by itself: what it would be, and what stands in the way."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from remote.agents.server.plan import foresee_command, read_model_config
from remote.errors import RoostError
from remote.jobs.gpu_demand import gpu_demand
from remote.pipeline import stages
from remote.pipeline.config import load_run
from remote.pipeline.fingerprints import UNDECIDED
from remote.pipeline.problems import check_engine, check_gpus, check_secrets, say
from remote.pipeline.stages import Blueprint
from remote.protocol.reports import ServerPlan
from remote.protocol.run import RunConfig
from remote.protocol.specs import ServerSpec


def plan_server(
    document: str, overrides: Mapping[str, str], *, drafter: bool, root: Path, python: str, capture: bool = False
) -> ServerPlan:
    """The server that the evaluation of the run file `document` measures, with or without the run's drafter, or the capturing one.

    `python` is the interpreter of the jobs. Raises UsageError or NotFound where the file is wrong.
    """
    run = load_run(document, overrides)
    if capture:
        spec = capturing_server(run, root=root)
    else:
        spec = _launched_again(evaluated_server(run, drafter=drafter, root=root), run.serving_engine.restarts)
    argv: list[str] = []
    environment: dict[str, str] = {}
    problems: list[str] = []
    try:
        command = foresee_command(spec, python=python)
        argv, environment = command.argv, command.environment
        read_model_config(spec.model)
        problems = check_server(run.name, spec, root, python)
    except RoostError as error:
        problems = [say(error)]
    return ServerPlan(run=run.name, spec=spec, command=argv, environment=environment, problems=problems)


def _launched_again(spec: ServerSpec, restarts: int) -> ServerSpec:
    return msgspec.structs.replace(spec, engine=msgspec.structs.replace(spec.engine, restarts=restarts))


def evaluated_server(run: RunConfig, *, drafter: bool, root: Path) -> ServerSpec:
    """What `run` serves with when it measures."""
    return stages.evaluation_server(Blueprint.draw(run, root, UNDECIDED), "drafter" if drafter else "baseline")


def capturing_server(run: RunConfig, *, root: Path) -> ServerSpec:
    """What captures hidden states by itself; its spool is not the one that the run clears away."""
    spec = stages.capture_server(Blueprint.draw(run, root, UNDECIDED))
    if spec.capture is None:
        return spec
    spool = f"{spec.capture.spool_directory}-by-itself"
    return msgspec.structs.replace(spec, capture=msgspec.structs.replace(spec.capture, spool_directory=spool))


def check_server(name: str, spec: ServerSpec, root: Path, python: str) -> list[str]:
    """Why `spec` cannot be launched on this host.

    Raises RoostError for options that contradict each other.
    """
    problems = [*check_engine([spec], root, python), *check_secrets(spec.engine, root, spec.section)]
    problems += check_gpus(name, gpu_demand(spec), spec.section)
    if spec.drafter is not None and not (Path(spec.drafter.model) / "config.json").exists():
        problems.append(f"there is no drafter at {spec.drafter.model}. Run the training first, or serve without it.")
    return problems
