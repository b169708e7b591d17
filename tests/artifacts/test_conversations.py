"""Data files: every error names its line, and each known shape of a prompt is read."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.artifacts.conversations import Prompt, choose_prompts, read_conversations, read_prompts
from remote.errors import Precondition

CONVERSATION = b'{"id": "a", "conversations": [{"role": "user", "content": "q"}]}'


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 3}',
        b'{"id": "b"}',
        b'{"id": "b", "conversations": [{"role": "user"}]}',
        b'{"id": "b", "conversations": "none"}',
        b"no JSON",
        b'{"id": "b\xff", "conversations": []}',
    ],
)
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(CONVERSATION + b"\n\n" + line + b"\n")
    with pytest.raises(Precondition, match=r"data\.jsonl:3 is no conversation"):
        read_conversations(path)
    assert [found.id for found in read_conversations(path, limit=1)] == ["a"]


@pytest.mark.parametrize("line", [b'{"prompt": 7}', b"[1]", b"{half"])
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(CONVERSATION + b"\n" + line + b"\n")
    with pytest.raises(Precondition, match=r"data\.jsonl:2 is no prompt"):
        read_prompts(path, limit=10)


@pytest.mark.parametrize(
    "line",
    [b'{"prompt": ""}', b'{"turns": []}', b'{"conversations": [{"role": "assistant", "content": "a"}]}', b"{}"],
)
def test_a_prompt_without_a_question_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(CONVERSATION + b"\n" + line + b"\n")
    with pytest.raises(Precondition, match=r"data\.jsonl:2 has no user message"):
        read_prompts(path, limit=10)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_a_line_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(content)
    with pytest.raises(Precondition, match="no conversations"):
        read_conversations(path)
    with pytest.raises(Precondition, match="no prompts"):
        read_prompts(path, limit=10)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Precondition, match=r"cannot read .*absent\.jsonl: No such file"):
        read_conversations(tmp_path / "absent.jsonl")
    with pytest.raises(Precondition, match="it is no file"):
        read_prompts(tmp_path, limit=1)


def test_prompts_come_from_conversations_and_from_benchmarks(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"id": "c", "conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}\n'
        '{"question_id": 81, "category": "writing", "turns": ["first", "second"]}\n'
        '{"task_id": "HumanEval/0", "prompt": "def f():"}\n'
        '{"question_id": 0, "turns": ["zero"]}\n'
        '{"prompt": "nameless"}\n'
    )
    prompts = read_prompts(path, limit=10)
    assert [(prompt.prompt_id, prompt.turns[-1]["content"]) for prompt in prompts] == [
        ("c", "q"),
        ("81", "first"),
        ("HumanEval/0", "def f():"),
        ("0", "zero"),
        ("line-5", "nameless"),
    ]
    assert all(prompt.turns[-1]["role"] == "user" for prompt in prompts)
    assert len(read_prompts(path, limit=2)) == 2


def test_the_same_prompt_id_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"id": "a", "prompt": "one"}\n{"id": "b", "prompt": "two"}\n{"id": "a", "prompt": "three"}\n')
    with pytest.raises(Precondition, match=r"prompts\.jsonl:3 .*\"a\" again"):
        read_prompts(path, limit=10)
    assert len(read_prompts(path, limit=2)) == 2


def test_a_category_is_kept_and_what_has_none_has_none(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"question_id": 81, "category": "writing", "turns": ["a"]}\n{"prompt": "b"}\n')
    assert [prompt.category for prompt in read_prompts(path)] == ["writing", None]


@given(st.lists(st.sampled_from(["writing", "math", None])), st.integers(0, 30))
def test_a_choice_of_prompts_has_as_much_of_every_category_as_there_is(
    categories: list[str | None], count: int
) -> None:
    prompts = [Prompt(str(number), [], category) for number, category in enumerate(categories)]
    chosen = choose_prompts(prompts, count)
    assert len(chosen) == min(count, len(prompts)) == len({prompt.prompt_id for prompt in chosen})
    taken = {name: sum(prompt.category == name for prompt in chosen) for name in set(categories)}
    for name, found in taken.items():
        assert found == categories.count(name) or found >= max(taken.values()) - 1


def test_prompts_without_categories_are_the_first_ones() -> None:
    prompts = [Prompt(str(number), []) for number in range(9)]
    assert choose_prompts(prompts, 4) == prompts[:4]


def test_what_never_ends_and_what_nests_without_end_are_no_prompts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(Precondition, match="it is no file"):
            read_prompts(path)
    deep = tmp_path / "deep.jsonl"
    deep.write_text('{"id": "a", "prompt": "x", "more": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(Precondition, match=r"deep\.jsonl:1 is no prompt"):
        read_prompts(deep)


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_part_of_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "prompt": "x"}\r\n\r\n{"id": "b", "prompt": "y"}\r\n')
    assert [prompt.prompt_id for prompt in read_prompts(path)] == ["a", "b"]


def test_all_lines_that_are_no_conversations_are_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    good = '{"conversations": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]}'
    file.write_text("\n".join([good, "{", good, "[]", *["no"] * 30]))
    with pytest.raises(Precondition, match=r":2 is no conversation: .+; neither are 31 more: lines 4, 5, .+, …$"):
        read_conversations(file)
