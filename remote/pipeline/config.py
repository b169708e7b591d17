"""From the text of a run file to a checked `RunConfig`: a preset, what the file lays over it, and single overrides."""

import difflib
import math
import re
import sys
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec

from remote.errors import NotFound, UsageError
from remote.protocol.run import RunConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PRESET = "preset"
_PATH = re.compile(r"^(?P<what>.*) - at `\$(?P<path>.*)`$", re.DOTALL)
_UNKNOWN_KEY = re.compile(r"unknown field `(?P<key>[^`]*)`")


def load_run(document: str, overrides: Mapping[str, str] | None = None) -> RunConfig:
    """The run that `document` (TOML) describes, with `{"training.steps": "20"}` laid over it (values are TOML, or plain words).

    Raises UsageError that names the key and what is allowed there, NotFound for a preset that does not exist.
    """
    table = _parse(document, "the run file")
    preset = table.pop(_PRESET, None)
    if preset is not None:
        table = merge(load_preset(preset), table)
    for key, text in (overrides or {}).items():
        table = merge(table, _override(key, text))
    return _convert(table)


def lay_over(run: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """`run` with other values under keys such as `engine.flags.max-total-tokens`; raises UsageError as `load_run` does."""
    table: dict[str, Any] = msgspec.to_builtins(run)
    for key, value in settings.items():
        table = merge(table, _nested(key, value))
    return _convert(table)


def preset_names() -> list[str]:
    """The presets that this release brings along."""
    entries = resources.files("remote").joinpath("presets").iterdir()
    return sorted(entry.name[: -len(".toml")] for entry in entries if entry.name.endswith(".toml"))


def load_preset(name: object) -> dict[str, Any]:
    """The preset `name` as a table; raises NotFound with the list of those that exist."""
    known = preset_names()
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        raise NotFound(
            f"there is no preset {name!r}; this release has: {', '.join(known)}",
            hint=f"Did you mean {near[0]!r}?" if near else "Name one of them, or give the path of a run file.",
        )
    file = resources.files("remote").joinpath("presets", f"{name}.toml")
    return _parse(file.read_text(encoding="utf-8"), f"the preset {name}")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid upon `base`, table by table; everything that is no table is replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _parse(text: str, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{what} is not TOML: {error}",
            hint='What is planned is a run file\'s text; `preset = "NAME"` alone is a preset.',
        ) from error


def _override(key: str, text: str) -> dict[str, Any]:
    return _nested(key, _value(text))


def _nested(key: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - any TOML value
    parts = key.split(".")
    if not all(parts):
        raise UsageError(f"the override {key!r} is no key of a run file", hint="Write it as section.key=value.")
    for part in reversed(parts):
        value = {part: value}
    return value


def _value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    """What `text` says as a TOML value; text that is none stands for itself, so that a path needs no quotes."""
    try:
        table = tomllib.loads(f"value = {text}\n")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text


def _convert(table: dict[str, Any]) -> RunConfig:
    _check_sweep(table)
    try:
        run = msgspec.convert(table, RunConfig)
    except msgspec.ValidationError as error:
        raise UsageError(_explain(str(error))) from error
    if (found := _unsayable(msgspec.to_builtins(run))) is not None:
        raise UsageError(": ".join(found), hint="Leave the key out, or give it another value.")
    _check_engines(run)
    return run


def _unsayable(value: Any, key: str = "") -> tuple[str, str] | None:  # noqa: ANN401 - any TOML value
    """The first key with what neither the protocol's JSON nor a command line can say, though TOML can, and what that is."""
    if isinstance(value, float) and not math.isfinite(value):
        return key, "a number that is not finite is no setting"
    if isinstance(value, str) and "\0" in value:
        return key, "a NUL character cannot go into a command"
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    named = ((each, f"{key}.{name}".lstrip(".")) for name, one in below for each in (name, one))
    return next((found for each, name in named if (found := _unsayable(each, name)) is not None), None)


def _check_sweep(table: dict[str, Any]) -> None:
    tuning = table.get("tuning")
    sweep = tuning.get("sweep") if isinstance(tuning, dict) else None
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        if not isinstance(values, list):
            inner = next(iter(values), "key") if isinstance(values, dict) else None
            whole = key if inner is None else f"{key}.{inner}"
            raise UsageError(
                f"tuning.sweep.{key} is no list of values to try",
                hint=f'Write the whole key in quotes, with a list: [tuning.sweep] "{whole}" = [1, 2]',
            )


_OWN_FLAGS = ("host", "port", "uds", "model", "model-path", "model_path")
"""Options that decide what a server serves and who reaches it, in every spelling that SGLang or vLLM takes."""


def _check_engines(run: RunConfig) -> None:
    for section, engine in (("engine", run.engine), ("serving", run.serving_engine)):
        if own := next((flag for flag in engine.flags if flag in _OWN_FLAGS), None):
            raise UsageError(
                f"{section}.flags.{own}: Roost sets this itself. A server serves target.model at a free port of the host's loopback, "
                f"for an engine's HTTP interface has no other boundary",
                hint=f"Leave {own} out. `roost server request JOB /v1/models` reaches the server through SSH.",
            )
        if (odd := next((name for name in engine.environment if not name or "=" in name), None)) is not None:
            raise UsageError(
                f"{section}.environment: {odd!r} is no name of a variable",
                hint=f'Write it as [{section}.environment] NAME = "value".',
            )
    if run.serving_engine.name == "vllm" and run.speculation.top_k != 1:
        raise UsageError(
            f"speculation.top_k is {run.speculation.top_k}, but vllm serves the drafter, which drafts one chain of tokens and no tree",
            hint="Set speculation.top_k = 1, or serve with SGLang.",
        )


def _explain(error: str) -> str:
    """msgspec's words with the key as people write it and what is allowed there."""
    match = _PATH.match(error)
    what, path = (match["what"], match["path"].lstrip(".")) if match else (error, "")
    place = re.sub(r"\[\.\.\.\]", "", path)
    found = _type_at(place.split(".") if place else [])
    unknown = _UNKNOWN_KEY.search(what)
    if unknown and isinstance(found, msgspec.inspect.StructType):
        allowed = [field.name for field in found.fields]
        key = f"{place}.{unknown['key']}" if place else unknown["key"]
        near = difflib.get_close_matches(unknown["key"], allowed, n=1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        return f"{key}: there is no such key{guess}; allowed here: {', '.join(allowed)}"
    if isinstance(found, msgspec.inspect.LiteralType):
        what = f"{what}; allowed: {', '.join(str(value) for value in found.values)}"
    return f"{path or 'the run file'}: {what}"


def _type_at(path: list[str]) -> msgspec.inspect.Type | None:
    """The type of the key at `path` of a run file; None where it cannot be told."""
    found: msgspec.inspect.Type = msgspec.inspect.type_info(RunConfig)
    for key in path:
        if not isinstance(found, msgspec.inspect.StructType):
            return None
        fields = {field.name: field.type for field in found.fields}
        if key not in fields:
            return None
        found = fields[key]
    return found
