"""Conversations and prompts as JSONL, read with errors that name the file and the line."""

import codecs
import stat
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec

from remote.artifacts.chat_template import Turn
from remote.errors import Precondition


class Conversation(msgspec.Struct, frozen=True):
    """A line: `{"id", "conversations": [{"role", "content"}, …], "truncated"}`."""

    id: str
    conversations: list[Turn]
    truncated: bool = False


class _Prompt(msgspec.Struct, frozen=True):
    """A line of a benchmark: MT-Bench `{"question_id", "category", "turns": […]}` or `{"id", "prompt"}`."""

    id: str | None = None
    question_id: int | str | None = None
    task_id: str | None = None
    category: str | None = None
    prompt: str | None = None
    turns: list[str] | None = None
    conversations: list[Turn] | None = None


class Prompt(msgspec.Struct, frozen=True):
    """Turns that end with a user's message."""

    prompt_id: str
    turns: list[Turn]
    category: str | None = None


def _lines(path: Path, limit: int | None) -> Iterator[tuple[int, bytes]]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Precondition(f"cannot read {path}: it is no file", hint="name a JSONL file on the host")
        with path.open("rb") as file:
            number = 0
            for position, line in enumerate(file, start=1):
                if line.strip():
                    yield position, line.removeprefix(codecs.BOM_UTF8) if position == 1 else line
                    number += 1
                if number == limit:
                    return
    except OSError as error:
        raise Precondition(f"cannot read {path}: {error.strerror}", hint="name a JSONL file on the host") from error


def read_conversations(path: Path, *, limit: int | None = None) -> list[Conversation]:
    """The conversations of a file; raises Precondition that names the line that is none."""
    conversations: list[Conversation] = []
    for number, line in _lines(path, limit):
        try:
            conversations.append(msgspec.json.decode(line, type=Conversation))
        except (msgspec.DecodeError, RecursionError) as error:
            raise Precondition(
                f"{path}:{number} is no conversation: {error}", hint="mend or remove that line"
            ) from error
    if not conversations:
        raise Precondition(f"{path} holds no conversations", hint="name a file with at least one line")
    return conversations


def read_prompts(path: Path, *, limit: int | None = None) -> list[Prompt]:
    """The first `limit` prompts of a conversation or benchmark file; an answer at the end is dropped.

    Raises Precondition that names the line that is no prompt or has the id of an earlier one.
    """
    prompts: dict[str, Prompt] = {}
    for number, line in _lines(path, limit):
        try:
            entry = msgspec.json.decode(line, type=_Prompt)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Precondition(f"{path}:{number} is no prompt: {error}", hint="mend or remove that line") from error
        turns = _prompt_turns(entry)
        if not turns:
            raise Precondition(f"{path}:{number} has no user message", hint="mend or remove that line")
        prompt_id = _prompt_id(entry, number)
        if prompt_id in prompts:
            raise Precondition(
                f'{path}:{number} has the id "{prompt_id}" again', hint="give every line an id of its own"
            )
        prompts[prompt_id] = Prompt(prompt_id, turns, entry.category)
    if not prompts:
        raise Precondition(f"{path} holds no prompts", hint="name a file with at least one line")
    return list(prompts.values())


def choose_prompts(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """The first `count` prompts, taken from each category in turn where there are categories."""
    by_category: dict[str | None, list[Prompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    rounds = zip_longest(*by_category.values())
    return [prompt for chosen in rounds for prompt in chosen if prompt is not None][:count]


def _prompt_id(entry: _Prompt, number: int) -> str:
    given = (name for name in (entry.id, entry.question_id, entry.task_id) if name is not None)
    return str(next(given, f"line-{number}"))


def _prompt_turns(entry: _Prompt) -> list[Turn]:
    if entry.conversations:
        last_user = max((i for i, turn in enumerate(entry.conversations) if turn["role"] == "user"), default=-1)
        return entry.conversations[: last_user + 1]
    text = entry.prompt or (entry.turns[0] if entry.turns else None)
    return [Turn(role="user", content=text)] if text else []
