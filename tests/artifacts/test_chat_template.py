"""Text as the server reads it, and the assistant's words marked exactly."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from remote.artifacts.chat_template import ChatTemplate
from remote.artifacts.conversations import read_conversations, read_prompts
from remote.errors import Precondition

TINY = Path(__file__).parents[1] / "fixtures/tiny_target"


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(TINY / "model")


def decoded(template: ChatTemplate, ids: list[int]) -> str:
    return Tokenizer.from_file(str(TINY / "model/tokenizer.json")).decode(ids, skip_special_tokens=False)


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def marked(template: ChatTemplate, *texts: str, truncated: bool = False) -> tuple[str, str]:
    ids, mask = template.tokenize(turns(*texts), truncated=truncated)
    return decoded(template, ids), decoded(template, [token for token, counts in zip(ids, mask, strict=True) if counts])


def test_the_answer_and_its_end_count_and_nothing_else(template: ChatTemplate) -> None:
    whole, answer = marked(template, "Where is Anna?", "At the mill.")
    assert whole == "<|user|>Where is Anna?<|end|><|assistant|>At the mill.<|end|>"
    assert answer == "At the mill.<|end|>"


def test_every_answer_of_a_conversation_counts(template: ChatTemplate) -> None:
    whole, answers = marked(template, "a b", "one", "c d", "two")
    assert answers == "one<|end|>two<|end|>"
    assert whole.count("<|user|>") == 2


def test_a_cut_off_answer_has_no_end(template: ChatTemplate) -> None:
    whole, answer = marked(template, "Where?", "At the", truncated=True)
    assert answer == "At the"
    assert whole.endswith("At the")


def test_a_prompt_ends_where_the_answer_begins(template: ChatTemplate) -> None:
    prompt = template.prompt_ids(turns("Where is Anna?"))
    ids, mask = template.tokenize(turns("Where is Anna?", "At the mill."))
    assert prompt == ids[: mask.index(True)]


def test_a_model_without_a_template_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(Precondition, match="no chat template"):
        ChatTemplate(tmp_path)


def test_a_line_that_is_no_conversation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"id": "a", "conversations": []}\n\n{"id": 3}\n')
    with pytest.raises(Precondition, match=r"data\.jsonl:3"):
        read_conversations(path)
    with pytest.raises(Precondition, match="cannot read"):
        read_conversations(tmp_path / "absent.jsonl")


def test_prompts_come_from_conversations_and_from_benchmarks(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"id": "c", "conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}\n'
        '{"question_id": 81, "category": "writing", "turns": ["first", "second"]}\n'
        '{"task_id": "HumanEval/0", "prompt": "def f():"}\n'
    )
    prompts = read_prompts(path, limit=10)
    assert [(prompt.prompt_id, prompt.turns[-1]["content"]) for prompt in prompts] == [
        ("c", "q"),
        ("81", "first"),
        ("HumanEval/0", "def f():"),
    ]
    assert len(read_prompts(path, limit=2)) == 2
