"""SGLang 0.5.23: flags as in `srt/arg_groups/fields/*.py`, words of its log, and what to ask it; pure."""

import json
from pathlib import Path
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
from remote.engines.layer_ids import to_sglang
from remote.engines.paths import CAPTURE_SPOOL, SGLANG_CAPTURE, SGLANG_CPU
from remote.errors import Precondition
from remote.protocol.run import EngineConfig, FlagValue
from remote.protocol.specs import Capture, DrafterServing, ServerSpec

_CPU_CONTEXT, _CPU_REQUESTS = 2048, 8
"""Sizes the key-value cache on a CPU where the spec leaves it open."""


def command(spec: ServerSpec, place: Place) -> EngineCommand:
    """The launch for `spec`; raises Precondition for layer ids that it cannot capture."""
    own: dict[str, FlagValue] = {"model-path": spec.model, "host": HOST, "port": place.port}
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
    return EngineCommand(
        [spec.engine.python or place.python, "-m", "sglang.launch_server"], flags, _environment(spec), spec.section
    )


def _engine_flags(engine: EngineConfig) -> dict[str, FlagValue]:
    optional: dict[str, FlagValue | None] = {
        "mem-fraction-static": engine.memory_fraction,
        "context-length": engine.context_length,
        "max-running-requests": engine.max_running_requests,
        "prefill-attention-backend": engine.attention_backend,
        "decode-attention-backend": engine.attention_backend,
        "tp-size": engine.tensor_parallel_size if engine.tensor_parallel_size > 1 else None,
    }
    flags: dict[str, FlagValue] = {"device": engine.device, "dtype": engine.dtype, "enable-metrics": True}
    flags |= {name: value for name, value in optional.items() if value is not None}
    if engine.device == "cpu":
        # Without a bound the cache takes most of the machine's memory, and tens of seconds to be cleared.
        flags["max-total-tokens"] = (engine.context_length or _CPU_CONTEXT) * (
            engine.max_running_requests or _CPU_REQUESTS
        )
        flags["disable-overlap-schedule"] = True
        flags["sleep-on-idle"] = True
    return flags


_ROWS_ELSEWHERE = (
    "enable-mixed-chunk",
    "enable-dp-attention",
    "enable-two-batch-overlap",
    "enable-single-batch-overlap",
)
_ONE_AT_MOST = (
    *("pp-size", "pipeline-parallel-size", "dp-size", "data-parallel-size", "dcp-size", "decode-context-parallel-size"),
    *("attn-dp-size", "attention-data-parallel-size", "attn-cp-size", "attention-context-parallel-size", "nnodes"),
)


def _check_capturing(flags: dict[str, FlagValue]) -> None:
    """Raises Precondition for a run file's flag under which rows are missing, or lie elsewhere than the plugin takes them from."""
    kept = ("disable-radix-cache", "disable-prefill-cuda-graph", "disable-decode-cuda-graph")
    wrong = [name for name in kept if flags.get(name) is not True]
    wrong += [name for name in _ROWS_ELSEWHERE if flags.get(name)]
    wrong += [name for name in _ONE_AT_MOST if int(str(flags.get(name, 1))) > 1]
    if wrong:
        raise Precondition(
            f"hidden states cannot be captured with engine.flags.{wrong[0]} = {json.dumps(flags[wrong[0]])}: rows would be missing",
            hint="leave it out of [engine]; what is served and measured may have it in [serving]",
        )


def _capture_flags(capture: Capture, model_config: dict[str, Any]) -> dict[str, FlagValue]:
    text = model_config.get("text_config", model_config)
    try:
        layer_ids = to_sglang(
            capture.layer_ids,
            architecture=model_config["architectures"][0],
            num_hidden_layers=int(text["num_hidden_layers"]),
        )
    except ValueError as error:
        raise Precondition(str(error), hint="change extraction.layer_ids in the run file") from error
    return {
        "enable-return-hidden-states": True,
        "enable-return-aux-hidden-states": True,
        "return-aux-hidden-state-layer-ids": [str(layer_id) for layer_id in layer_ids],
        "speculative-algorithm": "EAGLE3",
        # A prefix from the cache skips its rows; a replayed graph skips the hook.
        "disable-radix-cache": True,
        "disable-prefill-cuda-graph": True,
        "disable-decode-cuda-graph": True,
    }


def _drafter_flags(drafter: DrafterServing) -> dict[str, FlagValue]:
    return {
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": drafter.model,
        "speculative-num-steps": drafter.speculation.num_steps,
        "speculative-eagle-topk": drafter.speculation.top_k,
        "speculative-num-draft-tokens": drafter.speculation.draft_tokens,
    }


def _environment(spec: ServerSpec) -> dict[str, str]:
    paths: list[Path] = []
    environment: dict[str, str] = {
        "SPT_NOENV": "1",  # else setproctitle wipes the environment that strays are found by
        "HF_HUB_OFFLINE": "1",
        "SGLANG_PLUGINS": "roost_capture",  # no other plugin that happens to be installed
    }
    if spec.engine.device == "cpu":
        paths.append(SGLANG_CPU)
        environment |= {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"}
    if spec.capture is not None:
        paths.append(CAPTURE_SPOOL)
        environment |= capture_environment(spec.capture)
    # The plugin captures only when it is told to. The release is of no use to the engine, whose Python may be another one.
    paths.append(SGLANG_CAPTURE)
    environment["PYTHONPATH"] = ":".join(map(str, paths))
    return environment | spec.engine.environment


KIND = EngineKind(
    distributions=("sglang",),
    help="--help",
    command=command,
    milestones=(
        (b"Load weight begin", "loading_weights"),
        (b"CUDA graph begin", "capturing_graphs"),
        (b"max_total_num_tokens=", "warming_up"),
    ),
    # Said once its own warm-up request has been answered.
    up=b"The server is fired up and ready to roll!",
    # It takes the port after it has loaded, and neither serves nor ends where it cannot.
    hopeless=(b"error while attempting to bind on address",),
    proof=Question("GET", "/ready"),
    version=Question("GET", "/server_info"),
    # SIGTERM alone drains without a deadline.
    drop=Question("POST", "/abort_request", {"abort_all": True}),
    causes=(
        Cause(
            b"Please try to increase --mem-fraction-static",
            "it ran out of memory while reserving the cache",
            "raise {section}.memory_fraction, or serve with a larger tensor_parallel_size",
        ),
        Cause(
            b"out of memory. Try to lower your batch size",
            "the key-value cache is too small for the batch",
            "lower {section}.max_running_requests",
        ),
        Cause(
            b"Attempted to load weight",
            "a checkpoint does not fit its config.json",
            "check that the weights and the config.json of the model and of the drafter belong together",
        ),
        *COMMON_CAUSES,
        # Of a signal: a scheduler that ended by an exception has told it.
        Cause(b"crashed with exit code -", "the process that computes was killed or crashed", KILLED),
    ),
)
