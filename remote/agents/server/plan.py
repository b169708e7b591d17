"""From a server's spec to the engine's command line and environment; pure.

Flag names are those of SGLang 0.5.23 (`srt/arg_groups/fields/*.py`).
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from remote.engines.layer_ids import to_sglang
from remote.engines.paths import SGLANG_CAPTURE, SGLANG_CPU
from remote.errors import Precondition
from remote.protocol.run import EngineConfig, FlagValue
from remote.protocol.specs import Capture, DrafterServing, ServerSpec

HOST = "127.0.0.1"
"""The only address that is ever bound: SGLang's own HTTP interface has no boundary but this one."""

_CPU_CONTEXT, _CPU_REQUESTS = 2048, 8
"""Sizes the key-value cache on a CPU where the spec leaves it open."""


class EngineCommand(NamedTuple):
    """What to execute: the launcher, the engine's own options, and the variables to lay over the inherited environment."""

    launcher: list[str]
    flags: dict[str, FlagValue]
    environment: dict[str, str]

    @property
    def argv(self) -> list[str]:
        """The whole command line."""
        return [*self.launcher, *_arguments(self.flags)]


def engine_command(spec: ServerSpec, *, python: str, port: int, model_config: dict[str, Any]) -> EngineCommand:
    """The launch of SGLang for `spec`; raises Precondition for layer ids that it cannot capture."""
    flags: dict[str, FlagValue] = {
        "model-path": spec.model,
        "host": HOST,
        "port": port,
        **_engine_flags(spec.engine),
        **(_capture_flags(spec.capture, model_config) if spec.capture else {}),
        **(_drafter_flags(spec.drafter) if spec.drafter else {}),
        **spec.engine.flags,
    }
    return EngineCommand([spec.engine.python or python, "-m", "sglang.launch_server"], flags, _environment(spec))


def read_model_config(model: str) -> dict[str, Any]:
    """The model's config.json; raises Precondition when there is none."""
    path = Path(model) / "config.json"
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Precondition(
            f"there is no model at {model} (no config.json)", hint="name its directory on the host"
        ) from None
    except ValueError as error:
        raise Precondition(f"{path} is no JSON: {error}", hint="fetch the model again") from error


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


def _arguments(flags: dict[str, FlagValue]) -> list[str]:
    arguments: list[str] = []
    for name, value in flags.items():
        match value:
            case False:
                pass
            case True:
                arguments.append(f"--{name}")
            case list():
                arguments += [f"--{name}", *value]
            case _:
                arguments += [f"--{name}", str(value)]
    return arguments


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
        environment["ROOST_CAPTURE_SPOOL"] = spec.capture.spool_directory
        environment["ROOST_CAPTURE_LAYER_IDS"] = ",".join(map(str, spec.capture.layer_ids))
    # The plugin captures only when it is told to. The release is of no use to the engine, whose Python may be another one.
    paths.append(SGLANG_CAPTURE)
    environment["PYTHONPATH"] = ":".join(map(str, paths))
    return environment | spec.engine.environment
