"""`roost spec`: the contract of the command in one document that programs read."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from console.cli.man import manual_page
from console.cli.options import Json
from console.cli.output import EXIT_CODES, EXIT_INTERRUPTED, execute, print_document, print_text
from console.documents import DOCUMENTS, SCHEMA_VERSION, schema_of, schemas
from console.errors import UsageError

VERB_DOCUMENTS: dict[str, list[str]] = {
    "allocation end": ["allocation"],
    "allocation show": ["allocation"],
    "allocation start": ["allocation", "allocation_plan"],
    "apply": ["run"],
    "approvals approve": ["approval"],
    "approvals list": ["approvals"],
    "approvals refuse": ["approval"],
    "approvals wait": ["approval"],
    "demo": ["demo", "scenarios"],
    "embedded prepare": ["embedded"],
    "embedded stop": ["embedded"],
    "extraction export": ["conversion"],
    "extraction import": ["conversion"],
    "extraction merge": ["merge"],
    "extraction start": ["extraction"],
    "extraction plan": ["extraction_plan"],
    "extraction show": ["extraction_report"],
    "extraction verify": ["verification"],
    "hosts check": ["check"],
    "hosts list": ["hosts"],
    "hosts prepare": ["environment"],
    "hosts trust": ["trusted"],
    "jobs": ["jobs"],
    "journal": ["journal"],
    "logs": ["log"],
    "notifications key": ["webhook_key"],
    "notifications list": ["notifications"],
    "notifications try": ["notification"],
    "plan": ["plan"],
    "pull": ["transfer"],
    "push": ["transfer"],
    "record": ["recording"],
    "replay": ["recording"],
    "run": ["run", "plan"],
    "secrets list": ["secrets"],
    "secrets remove": ["secrets"],
    "secrets set": ["secrets"],
    "server bench": ["benchmark"],
    "server figures": ["benchmark_report"],
    "server plan": ["server_plan"],
    "server request": ["reply"],
    "server start": ["server"],
    "server tune": ["tuning"],
    "server tuning": ["tuning_report"],
    "spec": ["spec"],
    "status": ["job"],
    "stop": ["job", "jobs"],
    "storage purge": ["job", "trash"],
    "storage reclaim": ["reclaim"],
    "storage restore": ["trash"],
    "storage usage": ["storage"],
    "telemetry": ["telemetry", "topology"],
    "training compare": ["training_comparison"],
    "training export": ["export"],
    "training plan": ["training_plan"],
    "training resume": ["training"],
    "training start": ["training"],
    "verdict": ["verdict"],
    "vocabulary build": ["build"],
    "vocabulary convert": ["convert"],
    "vocabulary copy": ["copy", "copy_plan"],
    "vocabulary coverage": ["coverage"],
    "vocabulary figures": ["coverage_report"],
    "vocabulary inspect": ["inspection"],
    "vocabulary validate": ["mapping"],
    "wait": ["job"],
}
"""Which documents each verb prints with --json; every one prints `error` where it fails."""


def documents_of(verb: list[str]) -> list[str]:
    """The documents of a verb, by its words."""
    return VERB_DOCUMENTS[" ".join(verb)]


def spec(
    context: typer.Context,
    document: Annotated[
        str | None, typer.Argument(metavar="[DOCUMENT]", help="Only the JSON Schema of this document.")
    ] = None,
    man: Annotated[bool, typer.Option("--man", help="The manual page, for `man`.")] = False,  # noqa: FBT002
    as_json: Json = False,  # noqa: FBT002
) -> None:
    """Print the contract for programs: verbs, exit codes, error codes, and the JSON Schema of every document."""
    if man:
        if as_json or document is not None:
            raise typer.BadParameter("--man is a page of its own: leave the rest out")
        print_text(manual_page(_contract(context.find_root().command), version("roost")).removesuffix("\n"))
        return

    async def work() -> dict[str, Any]:
        if document is None:
            return _contract(context.find_root().command)
        if document not in DOCUMENTS:
            raise UsageError(f"there is no document {document!r}", hint=f"there are {', '.join(DOCUMENTS)}")
        return schema_of(document)

    found = execute(work(), as_json=as_json)
    if as_json:
        print_document("spec", found)
    elif document is not None:
        print_text(f"for the JSON Schema of {document}: roost spec {document} --json")
    else:
        print_text("\n".join(_lines(found)))


def _contract(root: object) -> dict[str, Any]:
    documents, definitions = schemas()
    return {
        "schema_version": SCHEMA_VERSION,
        "exit_codes": {code.value: number for code, number in EXIT_CODES.items()} | {"interrupted": EXIT_INTERRUPTED},
        "verbs": _verbs(root, ()),
        "documents": documents,
        "$defs": definitions,
    }


def _verbs(command: Any, words: tuple[str, ...]) -> list[dict[str, Any]]:  # noqa: ANN401 - Typer's commands
    if isinstance(command, TyperGroup):
        return [verb for name, each in sorted(command.commands.items()) for verb in _verbs(each, (*words, name))]
    name = " ".join(words)
    return [
        {
            "verb": name,
            "help": " ".join((command.help or "").split()),
            "documents": VERB_DOCUMENTS.get(name, []),
            "parameters": [_parameter(parameter) for parameter in command.params if parameter.name != "help"],
        }
    ]


def _parameter(parameter: Any) -> dict[str, Any]:  # noqa: ANN401 - Typer's parameters
    is_argument = parameter.param_type_name == "argument"
    return {
        "name": (parameter.metavar or parameter.name) if is_argument else max(parameter.opts, key=len),
        "kind": "argument" if is_argument else "flag" if parameter.is_flag else "option",
        "required": parameter.required,
        "repeatable": parameter.multiple or parameter.nargs == -1,
        "help": parameter.help or "",
    }


def _lines(found: dict[str, Any]) -> list[str]:
    codes = ", ".join(f"{name} {number}" for name, number in found["exit_codes"].items())
    return [
        f"schema_version {SCHEMA_VERSION}; the schemas are in `roost spec --json`",
        "",
        *(f"roost {verb['verb']:<22} {', '.join(verb['documents']) or 'no document'}" for verb in found["verbs"]),
        "",
        f"exit codes: {codes}",
    ]
