"""Conversations and prompts as JSONL, read with errors that name the file and the line."""

import codecs
import stat
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from remote.artifacts.chat_template import Turn
from remote.errors import Precondition


class Conversation(msgspec.Struct, frozen=True):
    """A conversation as turns, or as token ids with the mask of those that count for the loss."""

    id: str
    conversations: list[Turn]
    truncated: bool = False
    input_ids: list[int] | None = None
    loss_mask: list[bool] = []


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""


class _Turn(msgspec.Struct, frozen=True):
    """OpenAI's and our own `{"role", "content"}`, or ShareGPT's `{"from", "value"}`; a content may come in parts."""

    role: str | None = None
    content: str | list[_Part] | None = None
    speaker: str | None = msgspec.field(default=None, name="from")
    value: str | None = None


class _Line(msgspec.Struct, frozen=True):
    """`conversations` as ShareGPT and we have it, `messages` as OpenAI has it, or `input_ids` with a `loss_mask`."""

    id: str | int | None = None
    conversations: list[_Turn] | None = None
    messages: list[_Turn] | None = None
    input_ids: list[Annotated[int, msgspec.Meta(ge=0)]] | None = None
    loss_mask: list[bool | Literal[0, 1]] | None = None
    truncated: bool = False


_NAMED_LINES = 20
_ROLE_OF_SPEAKER = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant"}


def _turn(turn: _Turn) -> Turn:
    role = turn.role or turn.speaker
    content = turn.value if turn.content is None else turn.content
    if role is None or content is None:
        raise ValueError("a turn needs role and content, or from and value")
    if not isinstance(content, str):
        if other := next((part.type for part in content if part.type != "text"), None):
            raise ValueError(f"a turn has a part of type {other}; only text can be used")
        content = "".join(part.text for part in content)
    return Turn(role=_ROLE_OF_SPEAKER.get(role, role), content=content)


def parse_conversation(line: bytes, number: int) -> Conversation:
    """A line of a data file, which has the id `line-<number>` unless it says another. Raises ValueError that says what is wrong."""
    read = msgspec.json.decode(line, type=_Line)
    conversation_id = f"line-{number}" if read.id is None else str(read.id)
    if read.input_ids is not None:
        mask = [bool(counts) for counts in read.loss_mask or ()]
        if len(mask) != len(read.input_ids):
            raise ValueError(f"{len(read.input_ids)} input_ids need a loss_mask of as many, not {len(mask)}")
        return Conversation(conversation_id, [], input_ids=read.input_ids, loss_mask=mask)
    turns = read.conversations or read.messages
    if not turns:
        raise ValueError("it has none of conversations, messages and input_ids")
    return Conversation(conversation_id, [_turn(turn) for turn in turns], read.truncated)


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
    """The conversations of a file; raises Precondition that names the lines that are none."""
    conversations: list[Conversation] = []
    wrong: dict[int, str] = {}
    for number, line in _lines(path, limit):
        try:
            conversations.append(parse_conversation(line, number))
        except (ValueError, RecursionError) as error:
            wrong[number] = str(error)
    if wrong:
        first, *others = wrong
        named = ", ".join(map(str, others[:_NAMED_LINES])) + (", …" if len(others) > _NAMED_LINES else "")
        more = f"; neither are {len(others):,} more: lines {named}" if others else ""
        raise Precondition(
            f"{path}:{first} is no conversation: {wrong[first]}{more}", hint="mend or remove what is named"
        )
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
