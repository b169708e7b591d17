"""What would make a run fail, found before it begins; each problem is a sentence with what to do about it."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from remote.agents.server.options import complaints, read_options
from remote.agents.server.plan import KINDS, engine_command, read_model_config
from remote.agents.training.latent import servable
from remote.agents.training.rope import read_rope
from remote.engines.layer_ids import to_sglang, to_vllm
from remote.errors import Precondition, RoostError
from remote.jobs.gpu_demand import GpuDemand, gpu_demand
from remote.jobs.leases import no_devices
from remote.jobs.secret_store import names_of_lost_secrets
from remote.paths import resolve_path
from remote.pipeline import stages
from remote.pipeline.fingerprints import UNDECIDED, Inputs, hash_initial, hash_mapping_source
from remote.pipeline.given_store import describe_given_store
from remote.pipeline.inputs import (
    Conversations,
    Prompts,
    Target,
    describe_conversations,
    describe_prompts,
    describe_target,
)
from remote.pipeline.stages import Blueprint
from remote.pipeline.trackers import check_trackers
from remote.protocol.run import EngineConfig, RunConfig, TrainingConfig
from remote.protocol.specs import EngineSection, ServerSpec
from remote.redaction import SECRET_NAME
from remote.telemetry.occupancy import ask_occupancy

_IMPORT_TIMEOUT_S = 30.0
_FIND_ENGINE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"

_T = TypeVar("_T")


class Survey(NamedTuple):
    """What was found of the inputs (None where it is missing) and every problem; `engines` are the versions of those that it serves with."""

    target: Target | None
    train: Conversations | None
    inputs: Inputs | None
    problems: list[str]
    engines: dict[str, str]


def survey(run: RunConfig, root: Path, python: str) -> Survey:
    """Read the inputs of `run` and check them; `python` is the interpreter that runs the engine unless the run names one."""
    problems: list[str] = []
    target = _attempt(problems, lambda: describe_target(resolve_path(root, run.target.model)))
    given = run.extraction.source is not None
    train = None if given else _attempt(problems, lambda: _describe_train(run, root))
    held_out = _attempt(problems, lambda: describe_prompts(resolve_path(root, run.data.evaluation)))
    before = len(problems)
    mapping_source = _attempt(problems, lambda: hash_mapping_source(run, root))
    store_source = _attempt(problems, lambda: describe_given_store(run, target, root) if target else None)
    initial = _attempt(problems, lambda: hash_initial(run, root))
    inputs = None
    if target and (train or store_source) and held_out and len(problems) == before:
        inputs = Inputs(target, train, held_out, mapping_source, store_source, initial)
    problems.extend(_check_target(run, target) if target else [])
    _attempt(problems, lambda: check_drafter_kind(run.training, target) if target else None)
    problems.extend(_check_data(run, train, held_out) if held_out and (train or given) else [])
    problems.extend(check_speculation(run))
    problems.extend(_check_levels(run))
    problems.extend(check_ranks(run))
    problems.extend(check_trackers(run.training.trackers, python, root))
    engines: dict[str, str] = {}
    for servers in _servers(run, root):
        problems.extend(check_engine(servers, root, python, engines))
    problems.extend(_attempt(problems, lambda: list(_check_gpus(run))) or [])
    problems.extend(_attempt(problems, lambda: list(_check_secrets(run, root))) or [])
    return Survey(target, train, inputs, problems, engines)


def say(error: RoostError) -> str:
    """An error of this side as one sentence with its hint."""
    return error.info.message if error.info.hint is None else f"{error.info.message}. {error.info.hint}"


def _attempt(problems: list[str], read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except RoostError as error:
        problems.append(say(error))
        return None


def _check_target(run: RunConfig, target: Target) -> Iterator[str]:
    layer_ids, layers = list(run.extraction.layer_ids), target.num_hidden_layers
    try:
        # vLLM takes whatever lies within the model, SGLang not: it may be the one that captures, or the one that serves the drafter.
        to_vllm(layer_ids, num_hidden_layers=layers)
        if "sglang" in (run.engine.name, run.serving_engine.name):
            to_sglang(layer_ids, architecture=target.architecture, num_hidden_layers=layers)
    except ValueError as error:
        yield f"extraction.layer_ids: {error}"
    if run.vocabulary.draft_vocab_size > target.vocab_size:
        yield (
            f"vocabulary.draft_vocab_size is {run.vocabulary.draft_vocab_size}, but the target knows only "
            f"{target.vocab_size} tokens. Choose a smaller draft vocabulary."
        )


def check_drafter_kind(training: TrainingConfig, target: Target) -> None:
    """Raise Precondition where no served drafter turns positions, or attends, as this training's would."""
    config = read_model_config(target.path)
    rope = read_rope(config.get("text_config") or config)
    if training.drafter.architecture == "mla":
        servable(target.latent, rope)


def _describe_train(run: RunConfig, root: Path) -> Conversations:
    train = resolve_path(root, run.data.train)
    return describe_conversations(train, max_samples=run.data.max_samples, max_length=run.data.max_length)


def _check_data(run: RunConfig, train: Conversations | None, held_out: Prompts) -> Iterator[str]:
    if train is not None and train.sha256 == held_out.sha256:
        yield "data.train and data.evaluation are the same conversations. Evaluate on prompts that were held out."
    if held_out.count < run.evaluation.prompts:
        yield (
            f"{held_out.path} holds {held_out.count} prompts, but evaluation.prompts asks for "
            f"{run.evaluation.prompts}. Add prompts or ask for fewer."
        )


def check_speculation(run: RunConfig) -> Iterator[str]:
    """Numbers of drafts that no engine takes together."""
    speculation = run.speculation
    if speculation.top_k == 1 and speculation.draft_tokens != speculation.num_steps + 1:
        yield (
            f"speculation: with top_k 1, draft_tokens must be num_steps + 1 = {speculation.num_steps + 1}, "
            f"not {speculation.draft_tokens}."
        )


def check_ranks(run: RunConfig) -> Iterator[str]:
    """More ranks than there is work for, or hosts that would not meet."""
    training, hosts = run.training, run.training.hosts
    ranks = training.ranks * hosts.count
    if ranks > training.batches_per_step:
        of_all = f" on each of {hosts.count} hosts" if hosts.count > 1 else ""
        yield (
            f"training.ranks is {training.ranks}{of_all}, but training.batches_per_step, what they share, is {training.batches_per_step}. "
            f"Raise it to {ranks} or a multiple, or lower training.ranks."
        )
    if hosts.number >= hosts.count:
        yield f"training.hosts.number is {hosts.number}, but they are counted from 0 to {hosts.count - 1}."
    if hosts.count > 1 and not _is_endpoint(hosts.rendezvous or ""):
        yield (
            f"training.hosts.rendezvous must be HOST:PORT of the first of the {hosts.count} hosts, not {hosts.rendezvous}. "
            "Name an address in the network that they share and a free port."
        )


def _is_endpoint(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and 0 < int(port) < 1 << 16


def _check_levels(run: RunConfig) -> Iterator[str]:
    levels, most = run.evaluation.concurrency, run.serving_engine.max_running_requests
    if sorted(set(levels)) != levels:
        yield f"evaluation.concurrency must ascend without repeats, not {levels}."
    if most is not None and max(levels) > most:
        yield (
            f"evaluation.concurrency asks for {max(levels)} requests at a time, but {stages.section_of(run)}.max_running_requests is {most}. "
            f"Lower the one or raise the other."
        )
    if missing := sorted(set(run.verdict.concurrency or levels) - set(levels)):
        yield f"verdict.concurrency names {missing[0]}, which evaluation.concurrency does not measure. Add it there."
    if max(levels) > run.evaluation.prompts:
        yield (
            f"evaluation.concurrency asks for {max(levels)} requests at a time, but evaluation.prompts is only "
            f"{run.evaluation.prompts}. Lower the one or raise the other."
        )


def _check_secrets(run: RunConfig, root: Path) -> Iterator[str]:
    if run.serving is not None:
        yield from _check_environment(run.serving, "serving")
    yield from check_secrets(run.engine, root, "engine")


def check_secrets(engine: EngineConfig, root: Path, section: EngineSection) -> Iterator[str]:
    """Tokens that are where they should not be, or not where they should."""
    yield from _check_environment(engine, section)
    for name in names_of_lost_secrets(root):
        yield (
            f"the token {name} was lost when the host restarted. Set it again by `roost secrets set {name}`, or remove it by "
            f"`roost secrets remove {name} --confirm {name}`."
        )


def _check_environment(engine: EngineConfig, section: EngineSection) -> Iterator[str]:
    for name in filter(SECRET_NAME.match, engine.environment):
        yield (
            f"{section}.environment holds {name}: a token in a run file ends up in records and on screens. Take it out of the "
            f"file and set it by `roost secrets set {name}`."
        )


def _servers(run: RunConfig, root: Path) -> list[list[ServerSpec]]:
    """The run's servers, those of one engine together."""
    blueprint = Blueprint.draw(run, root, UNDECIDED)
    capturing, serving = stages.capture_server(blueprint), stages.evaluation_server(blueprint, "drafter")
    return [[capturing, serving]] if capturing.section == serving.section else [[capturing], [serving]]


def check_engine(
    servers: Sequence[ServerSpec], root: Path, python: str, versions: dict[str, str] | None = None
) -> Iterator[str]:
    """What keeps the engine of `servers`, which is one for all of them, from being launched with their options.

    Its version goes into `versions` by its name.
    """
    engine, section = servers[0].engine, servers[0].section
    interpreter = engine.python or python
    command = [interpreter, "-c", _FIND_ENGINE, engine.name]
    try:
        found = subprocess.run(command, capture_output=True, check=False, timeout=_IMPORT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"{section}.python: {interpreter} cannot be run ({error})."
        return
    if found.returncode != 0:
        yield (
            f"{interpreter} cannot import {engine.name}. "
            f"Name the interpreter of the engine's environment as {section}.python."
        )
        return
    try:
        yield from _check_options(servers, root, python, {} if versions is None else versions)
    except Precondition as error:
        yield say(error)


def _check_options(servers: Sequence[ServerSpec], root: Path, python: str, versions: dict[str, str]) -> Iterator[str]:
    """What the installed engine would refuse of the servers' options, by its own help; raises Precondition."""
    said: dict[str, None] = {}
    for spec in servers:
        try:
            command = engine_command(spec, python=python, port=0, model_config=read_model_config(spec.model))
        except Precondition:  # of the target or its layers, which are checked above
            return
        known = read_options(command, KINDS[spec.engine.name], root / "engines")
        versions[spec.engine.name] = known.version
        said |= dict.fromkeys(complaints(command.flags, known))
    for complaint in said:
        yield f"{servers[0].section}.flags: {complaint}"


def _check_gpus(run: RunConfig) -> Iterator[str]:
    """Whether this host has enough devices that work; who uses them now is asked when a stage needs them."""
    engines: list[tuple[EngineConfig, EngineSection]] = [
        (run.engine, "engine"),
        (run.serving_engine, stages.section_of(run)),
    ]
    demands: dict[GpuDemand, EngineSection | Literal["training"]] = {}
    for engine, section in engines:
        demand = gpu_demand(ServerSpec(model=run.target.model, engine=engine, section=section))
        demands.setdefault(demand, section)
    demands.setdefault(GpuDemand(run.training.ranks if run.training.device == "cuda" else 0), "training")
    for demand, section in demands.items():
        if problems := list(check_gpus(run.name, demand, section)):
            yield from problems
            return  # a host without devices has none for the others either


def check_gpus(name: str, demand: GpuDemand, section: EngineSection | Literal["training"]) -> Iterator[str]:
    """Why this host's devices, whoever uses them now, are not enough for what `section` of the run file of `name` asks for."""
    if demand.count == 0:
        return
    found = ask_occupancy()
    whole = [device.index for device in found.devices if device.error is None]
    if not found.devices:
        yield say(no_devices(name, demand, found.detail))
    elif missing := sorted(set(demand.indices) - set(whole)):
        yield f"{section}.environment names GPU {missing[0]}, which this host does not have or which is lost. Name another."
    elif len(whole) < demand.count:
        lost = len(found.devices) - len(whole)
        key = "training.ranks" if section == "training" else f"{section}.tensor_parallel_size"
        yield (
            f"{name} needs {demand.count} GPUs, but this host has {len(whole)}"
            f"{f' and {lost} that are lost' if lost else ''}. Lower {key} or use another host."
        )
