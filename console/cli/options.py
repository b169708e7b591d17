"""Options that several verbs share."""

import math
from typing import Annotated

import tomllib
import typer
from typer.core import TyperGroup

from remote.protocol.ids import LONGEST_KEY, is_job_id
from remote.protocol.run import TemplateVariables


def _host(context: typer.Context, value: str) -> str:
    """The host given to the verb, else that given before the verb: `roost -H gpu jobs` is `roost jobs -H gpu`."""
    root = context.find_root()
    return value if context is root or is_host_given(context) else root.params["host"]


def is_host_given(context: typer.Context) -> bool:
    """Whether --host stands on the command line at this place."""
    source = context.get_parameter_source("host")
    return source is not None and source.name != "DEFAULT"


Host = Annotated[
    str, typer.Option("--host", "-H", callback=_host, help="The host, as roost.toml names it, or 'embedded'.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout (NDJSON for streams).")]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the run file, such as training.steps=20."),
]


def finite(value: float | None) -> float | None:
    """`value` where it is a number that time can have; for typer, which takes nan and inf as well."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise typer.BadParameter(f"{value:g} is no number of seconds")
    return value


Timeout = Annotated[
    float | None,
    typer.Option("--timeout", callback=finite, help="Give up waiting after this many seconds (exit code 4)."),
]

NoWait = Annotated[bool, typer.Option("--no-wait", help="Start the job, print it and do not follow it.")]


def _key(value: str | None) -> str | None:
    if value is not None and not (is_job_id(value) and len(value) <= LONGEST_KEY):
        raise typer.BadParameter(f"lower-case letters, digits and dashes, at most {LONGEST_KEY} characters")
    return value


Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        callback=_key,
        help="Asked again with the same key it is the same job, never a second one; a word of your own.",
    ),
]

TemplateOption = Annotated[
    list[str],
    typer.Option(
        "--template",
        metavar="NAME=VALUE",
        help="A variable of the chat template, as a run's target.chat_template_kwargs has it, such as thinking=false.",
    ),
]


def template_variables(texts: list[str]) -> TemplateVariables:
    """`thinking=false` as a run file has it: a TOML value, or plain words."""
    return dict(map(_template_variable, texts))


def _template_variable(text: str) -> tuple[str, bool | int | float | str]:
    name, is_given, value = text.partition("=")
    if not (name.isidentifier() and is_given):
        raise typer.BadParameter("--template is NAME=VALUE, such as thinking=false")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value
    return name, read if isinstance(read, (bool, int, float)) else value


ACTOR = "cli"
"""Who the host's journal says asked for it."""


def takes_a_host(context: typer.Context, name: str) -> bool:
    """Whether the verb `name`, or one of the group `name`, acts on a host that can be named."""
    group = context.command
    return not isinstance(group, TyperGroup) or _has_host(group.commands[name])


def _has_host(command: object) -> bool:
    if isinstance(command, TyperGroup):
        return any(_has_host(verb) for verb in command.commands.values())
    return any(parameter.name == "host" for parameter in getattr(command, "params", []))
