"""The manual page, made of the contract that `roost spec` prints (pure)."""

import re
from typing import Any

_HYPHEN = re.compile(r"-")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def manual_page(contract: dict[str, Any], release: str) -> str:
    """The page in the man macros, for section 1."""
    lines = [
        f'.TH ROOST 1 "" "roost {release}" "Roost"',
        ".SH NAME",
        "roost \\- train EAGLE\\-3 drafters on a GPU host",
        ".SH SYNOPSIS",
        ".B roost",
        "[\\fB\\-H\\fR \\fIHOST\\fR] [\\fIVERB\\fR [\\fIARGUMENT\\fR ...]]",
        ".SH DESCRIPTION",
        _text(
            "Serves a target model, extracts its hidden states, builds or copies and validates the draft vocabulary, trains the "
            "drafter, serves with it and says with measured figures whether it helps. Without a verb it opens the screen. The work is "
            "jobs on the host, which survive every disconnect."
        ),
        ".SH VERBS",
    ]
    for verb in contract["verbs"]:
        lines += _verb(verb)
    lines += [".SH EXIT STATUS", *_codes(contract["exit_codes"])]
    lines += [
        ".SH FILES",
        ".TP",
        ".I ~/.config/roost/roost.toml",
        "The hosts.",
        ".TP",
        ".I ~/.local/share/roost",
        "The embedded host.",
        ".SH SEE ALSO",
        _text(
            "docs/HEADLESS.md, docs/RUN_FILE.md and docs/AGENTS-GUIDE.md of the sources; roost spec --json for programs."
        ),
    ]
    return "\n".join(lines) + "\n"


def _verb(verb: dict[str, Any]) -> list[str]:
    arguments = [parameter for parameter in verb["parameters"] if parameter["kind"] == "argument"]
    options = [parameter for parameter in verb["parameters"] if parameter["kind"] != "argument"]
    words = " ".join(_argument(argument) for argument in arguments)
    lines = [f".SS roost {_text(verb['verb'])} {_text(words)}".rstrip(), _text(verb["help"])]
    for option in options:
        value = "" if option["kind"] == "flag" else " \\fIVALUE\\fR"
        lines += [".TP", f"\\fB{_text(option['name'])}\\fR{value}", _text(option["help"]) or "\\&"]
    return lines


def _argument(argument: dict[str, Any]) -> str:
    name = str(argument["name"])
    return name if argument["required"] or name.startswith("[") else f"[{name}]"


def _codes(codes: dict[str, int]) -> list[str]:
    names: dict[int, list[str]] = {0: ["ok"]}
    for name, number in codes.items():
        names.setdefault(number, []).append(name)
    return [line for number in sorted(names) for line in (".TP", f".B {number}", _text(", ".join(names[number])))]


def _text(text: str) -> str:
    """Words as they are: no macro, no escape, and a hyphen that can be copied."""
    escaped = _HYPHEN.sub(r"\\-", text.replace("\\", "\\e"))
    escaped = _BEYOND_ASCII.sub(lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
