"""The options that the installed engine itself knows, by its `--help`: a misspelt one is an error before the launch."""

import difflib
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from remote.agents.server.contract import EngineCommand, EngineKind
from remote.artifacts.atomic import write_atomic
from remote.errors import Precondition
from remote.protocol.run import FlagValue

_TIMEOUT_S = 180.0
_LAST_LINES = 6
_OPTION_LINE = re.compile(r"^  (--[a-z].*)$", re.MULTILINE)
_NAME = re.compile(r"^--([a-z0-9][a-z0-9-]*)(?: (\{[^}]*\}|[A-Z\[]\S*))?")
_IDENTIFY = (
    "import importlib.metadata as m, os, sys; d = next(d for name in sys.argv[1:] for d in m.distributions(name=name)); "
    "p = d.locate_file(''); print(d.version, p, os.stat(p).st_mtime_ns)"
)


class Option(msgspec.Struct, frozen=True):
    """One option: whether a value follows it, and which ones it takes (empty: any)."""

    value: Literal["none", "optional", "needed"]
    choices: list[str] = []


class EngineOptions(msgspec.Struct, frozen=True):
    """What an engine of that version can be told, by the names of its long options without their dashes."""

    version: str
    options: dict[str, Option]


def parse_help(text: str) -> dict[str, Option]:
    """The long options in the help of an `argparse` program."""
    found: dict[str, Option] = {}
    for line in _OPTION_LINE.findall(text):
        for part in re.split(r", (?=--)", line):
            named = _NAME.match(part)
            if named is None:
                continue
            metavar = named.group(2) or ""
            choices = metavar[1:-1].split(",") if metavar.startswith("{") else []
            value = "none" if not metavar else "optional" if metavar.startswith("[") else "needed"
            found[named.group(1)] = Option(value, choices)
    return found


def complaints(flags: Mapping[str, FlagValue], known: EngineOptions) -> list[str]:
    """What the engine would refuse of `flags`, one sentence each with what to do."""
    return [sentence for name, value in flags.items() if (sentence := _complaint(name, value, known))]


def _complaint(name: str, value: FlagValue, known: EngineOptions) -> str | None:
    option = known.options.get(name)
    if option is None:
        near = difflib.get_close_matches(name, known.options, n=2, cutoff=0.75)
        instead = f"; did you mean {' or '.join(f'--{match}' for match in near)}?" if near else "."
        return f"--{name} is no option of the installed engine ({known.version}){instead}"
    if isinstance(value, bool):
        return f"--{name} needs a value." if value and option.value == "needed" else None
    if option.value == "none":
        return f"--{name} takes no value, it is given {value!r}: write true or false."
    given = [str(one) for one in value] if isinstance(value, list) else [str(value)]
    wrong = [one for one in given if option.choices and one not in option.choices]
    if not wrong:
        return None
    near = difflib.get_close_matches(wrong[0], option.choices, n=3, cutoff=0.5) or option.choices[:8]
    return f"--{name} does not take {wrong[0]!r}; near it: {', '.join(near)}."


def read_options(command: EngineCommand, kind: EngineKind, cache: Path) -> EngineOptions:
    """The options of the engine that `command` launches, asked once for each installation and kept in `cache`.

    Raises Precondition when the engine cannot even say them.
    """
    identity = identify(command, kind)
    path = cache / f"options-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=EngineOptions)
    except (OSError, msgspec.DecodeError):
        pass
    found = EngineOptions(identity.split()[0], parse_help(_ask([*command.launcher, kind.help], command)))
    if not found.options:
        raise Precondition(
            f"{' '.join(command.launcher)} {kind.help} names no options", hint="install the engine again"
        )
    cache.mkdir(mode=0o700, exist_ok=True)
    write_atomic(path, json.dumps(msgspec.to_builtins(found), indent=1).encode())
    return found


def identify(command: EngineCommand, kind: EngineKind) -> str:
    """The version of the engine's package, where it is installed and when that changed last.

    Raises Precondition when the engine cannot say it.
    """
    return f"{_ask([command.launcher[0], '-c', _IDENTIFY, *kind.distributions], command).strip()} {command.launcher[0]}"


def _ask(argv: list[str], command: EngineCommand) -> str:
    environment = {**os.environ, **command.environment}
    try:
        done = subprocess.run(
            argv,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Precondition(
            f"the engine cannot be asked for its options: {error}", hint=f"see {command.section}.python in the run file"
        ) from error
    if done.returncode != 0:
        last = " / ".join(done.stderr.decode(errors="replace").strip().splitlines()[-_LAST_LINES:])
        raise Precondition(
            f"the engine cannot even say its options ({argv[0]} ended with {done.returncode}): {last}",
            hint=f"its environment is broken: install it again, or correct {command.section}.python in the run file",
        )
    return done.stdout.decode(errors="replace")
