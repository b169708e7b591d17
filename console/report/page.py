"""Pieces of a Markdown page; a host's words are made harmless here; pure."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from console.state.sanitize import one_line

_MARKED = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
_BACKTICKS = re.compile(r"`+")


def bullets(heading: str, sentences: Iterable[str]) -> list[str]:
    """A heading with its sentences; nothing where there are none."""
    items = [f"- {text(sentence)}" for sentence in sentences]
    return [f"## {heading}", "", *items] if items else []


def picture(plots: Sequence[str], name: str, words: str) -> list[str]:
    """The picture `name`, if it is among `plots`."""
    return [f"![{words}]({name})"] if name in plots else []


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def block(lines: Sequence[str]) -> list[str]:
    """Shell commands as they are, whatever backticks they hold."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}sh", *lines, fence]


def pasteable(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A command with its environment as a shell takes it, an option with its values a line; `command` is not empty."""
    pieces = ["env", *(_quoted(f"{key}={value}") for key, value in environment.items()), _quoted(command[0])]
    for word in map(_quoted, command[1:]):
        if word.startswith("-"):
            pieces.append(word)
        else:
            pieces[-1] += f" {word}"
    return [f"{'  ' if place else ''}{piece} \\" for place, piece in enumerate(pieces[:-1])] + [f"  {pieces[-1]}"]


def _quoted(word: str) -> str:
    return shlex.quote(one_line(word))


def text(words: str) -> str:
    """A host's words as text that Markdown shows as they are, on one line."""
    return _MARKED.sub(r"\\\1", one_line(words))


def code(words: str) -> str:
    """A host's words as code, in a table too."""
    line = one_line(words).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"
