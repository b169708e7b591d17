"""Text as the server reads it, and the assistant's words marked exactly."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from console.embedded.locations import EmbeddedHome
from remote.artifacts.chat_template import ChatTemplate, hash_chat_template
from remote.artifacts.conversations import read_conversations
from remote.engines.paths import SGLANG_CPU
from remote.errors import Precondition

REPOSITORY = Path(__file__).parents[2]
TINY = REPOSITORY / "tests/fixtures/tiny_target"
SMOLLM2 = EmbeddedHome.default().root / "models/smollm2-135m-instruct"

OWN_TEMPLATE_WORDS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
FORGETFUL = "{% for m in messages %}<|{{ m.role }}|>{{ m.content if loop.last else '' }}<|end|>{% endfor %}"
SHOUTING = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | upper }}<|end|>{% endfor %}"
OPENING = "{% if add_generation_prompt %}<|assistant|>{% endif %}"


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(TINY / "model")


def model_with(directory: Path, source: str) -> Path:
    shutil.copy(TINY / "model/tokenizer.json", directory)
    (directory / "tokenizer_config.json").write_text('{"eos_token": {"content": "<|end|>"}}')
    (directory / "chat_template.jinja").write_text(source)
    return directory


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


WORDS = st.text("abcdefgh .?!", min_size=1, max_size=20)


@given(st.lists(WORDS, min_size=2, max_size=6).filter(lambda texts: len(texts) % 2 == 0), st.booleans())
def test_what_counts_is_what_the_assistant_said(template: ChatTemplate, texts: list[str], truncated: bool) -> None:
    whole, answers = marked(template, *texts, truncated=truncated)
    said = [f"{text}<|end|>" for text in texts[1::2]]
    if truncated:
        said[-1] = texts[-1]
    assert answers == "".join(said)
    assert whole == "".join(f"<|user|>{q}<|end|><|assistant|>{a}" for q, a in zip(texts[::2], said, strict=True))


def test_a_question_without_an_answer_is_left_out(template: ChatTemplate) -> None:
    assert template.tokenize(turns("Where?", "Here.", "And now?")) == template.tokenize(turns("Where?", "Here."))
    assert template.tokenize(turns("Where?")) == ([], [])


def test_a_template_in_its_own_file_is_taken(tmp_path: Path) -> None:
    template = ChatTemplate(model_with(tmp_path, OWN_TEMPLATE_WORDS + OPENING))
    assert marked(template, "Where?", "Here.") == ("<|user|>Where?<|end|><|assistant|>Here.<|end|>", "Here.<|end|>")


def test_a_variable_of_the_template_changes_what_is_read_and_its_hash(tmp_path: Path) -> None:
    """As Kimi-K2.5's `thinking`: the opening of an answer that is no thought belongs to the prompt, and does not count."""
    answered = (
        "{% for m in messages %}<|{{ m.role }}|>{{ '~' if m.role == 'assistant' }}{{ m.content }}<|end|>{% endfor %}"
    )
    opening = "{% if add_generation_prompt %}<|assistant|>{{ '~' if thinking is defined and not thinking }}{% endif %}"
    model = model_with(tmp_path, answered + opening)
    plain, at_once = ChatTemplate(model), ChatTemplate(model, {"thinking": False, "messages": "is not one"})
    assert marked(plain, "Where?", "Here.")[1] == "~Here.<|end|>"
    assert marked(at_once, "Where?", "Here.") == ("<|user|>Where?<|end|><|assistant|>~Here.<|end|>", "Here.<|end|>")
    assert plain.sha256 == hash_chat_template(model, {})
    assert at_once.sha256 != plain.sha256 != hash_chat_template(model, {"thinking": True})


def test_a_template_that_rewrites_earlier_turns_is_refused(tmp_path: Path) -> None:
    template = ChatTemplate(model_with(tmp_path, FORGETFUL + OPENING))
    with pytest.raises(Precondition, match="rewrites earlier turns"):
        template.tokenize(turns("Where?", "Here.", "And now?", "There."))


def test_a_cut_off_answer_that_the_template_rewrites_is_refused(tmp_path: Path) -> None:
    template = ChatTemplate(model_with(tmp_path, SHOUTING + OPENING))
    with pytest.raises(Precondition, match="rewrites"):
        template.tokenize(turns("Where?", "At the"), truncated=True)


def test_what_a_template_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    template = ChatTemplate(model_with(tmp_path, "{{ raise_exception('roles must alternate') }}"))
    with pytest.raises(Precondition, match="roles must alternate"):
        template.prompt_ids(turns("Where?"))


def test_a_template_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Precondition, match=r"chat template of .* cannot be read"):
        ChatTemplate(model_with(tmp_path, "{% for m in messages %}"))


def test_a_template_cannot_reach_the_interpreter(tmp_path: Path) -> None:
    template = ChatTemplate(model_with(tmp_path, "{{ messages.__class__.__mro__[1].__subclasses__() }}"))
    with pytest.raises(Precondition, match="refuses"):
        template.prompt_ids(turns("Where?"))


def test_a_model_without_a_template_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(Precondition, match="no chat template"):
        ChatTemplate(tmp_path)


THE_ENGINES_OWN = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = lambda turns, **options: tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False, **options)
json.dump([[ids(turns[:-1], add_generation_prompt=True), ids(turns)] for turns in json.load(sys.stdin)], sys.stdout)
"""


@pytest.mark.engine
def test_the_ids_are_those_of_the_engines_own_tokenizer(engine_python: Path) -> None:
    if not SMOLLM2.is_dir():
        pytest.skip(f"the embedded host's model is not at {SMOLLM2}: `make demo` prepares it")
    data = read_conversations(REPOSITORY / "console/embedded/data/smollm2_eval.jsonl")
    conversations = [conversation.conversations for conversation in data]
    assert {len(conversation) for conversation in conversations} == {2}
    done = subprocess.run(
        [engine_python, "-c", THE_ENGINES_OWN, SMOLLM2],
        input=json.dumps(conversations),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SGLANG_CPU)},
    )
    assert done.returncode == 0, done.stderr
    template = ChatTemplate(SMOLLM2)
    for conversation, (prompt, whole) in zip(conversations, json.loads(done.stdout), strict=True):
        ids, mask = template.tokenize(conversation)
        assert template.prompt_ids(conversation[:-1]) == prompt
        assert ids == whole[: len(ids)]
        assert len(whole) - len(ids) == 1, "only the newline after the last end token is left out"
        assert mask == [False] * len(prompt) + [True] * (len(ids) - len(prompt))
