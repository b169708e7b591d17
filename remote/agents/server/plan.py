"""From a server's spec to its engine's command line and environment; pure but for the target's `config.json`."""

import json
from pathlib import Path
from typing import Any

from remote.agents.server import sglang, vllm
from remote.agents.server.contract import EngineCommand, EngineKind, Place
from remote.errors import Precondition
from remote.protocol.run import EngineName
from remote.protocol.specs import ServerSpec

KINDS: dict[EngineName, EngineKind] = {"sglang": sglang.KIND, "vllm": vllm.KIND}
"""Every engine that can be served with."""


def engine_command(spec: ServerSpec, *, python: str, port: int, model_config: dict[str, Any]) -> EngineCommand:
    """The launch of the engine that `spec` names; raises Precondition for what that engine cannot do."""
    return KINDS[spec.engine.name].command(spec, Place(python, port, model_config))


def foresee_command(spec: ServerSpec, *, python: str) -> EngineCommand:
    """The launch as a plan shows it, with port 0; a model that is not on the host is missed only where its layers are captured.

    Raises Precondition as `engine_command` does, and for a capture without the model.
    """
    try:
        model_config = read_model_config(spec.model)
    except Precondition:
        if spec.capture is not None:
            raise
        model_config = {}
    return engine_command(spec, python=python, port=0, model_config=model_config)


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
