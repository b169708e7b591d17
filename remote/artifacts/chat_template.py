"""A target's tokenizer and chat template, so that training and evaluation read text exactly as the server does.

The template runs as in Hugging Face transformers (`utils/chat_template_utils.py`): a sandboxed Jinja with trimmed blocks. Models
with a `tokenizer.json` need the `tokenizers` library alone; others (Kimi's tiktoken file) are read through transformers.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from remote.errors import Precondition


class Turn(TypedDict):
    """One message of a conversation."""

    role: str
    content: str


class TokenizedConversation(NamedTuple):
    """Token ids, and which of them are the assistant's own words (its end token included)."""

    input_ids: list[int]
    loss_mask: list[bool]


class ChatTemplate:
    """Renders and tokenizes conversations for the model in a directory; raises Precondition when it has no template.

    `variables` are what a request calls `chat_template_kwargs`; names that the template does not know change nothing.
    """

    def __init__(self, model: Path, variables: Mapping[str, bool | float | str] = {}) -> None:
        settings = _read_json(model / "tokenizer_config.json")
        self.source = _template_source(model, settings)
        self.eos_token = _token_text(settings.get("eos_token"))
        self._names = {
            name: _token_text(settings.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        }
        self._variables = dict(variables)
        self._template = _compile(model, self.source)
        self._encode, self._decode = _tokenizer(model)
        self.tokenizer_sha256 = hash_tokenizer(model)

    @property
    def sha256(self) -> str:
        """The hash of the template's source and its variables."""
        return _hash(self.source, self._variables)

    def prompt_ids(self, turns: Sequence[Turn]) -> list[int]:
        """The ids that a server is asked to continue: the turns and the opening of the assistant's answer."""
        return self._encode(self._render(turns, opening=True))

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens included."""
        return self._decode(list(ids))

    def tokenize(self, turns: Sequence[Turn], *, truncated: bool = False) -> TokenizedConversation:
        """Ids and loss mask; each answer is tokenized by itself, as a server generates it.

        A `truncated` last answer ends without its end token, which the model never said.
        """
        ids: list[int] = []
        mask: list[bool] = []
        done = ""
        for position, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            opening = self._render(turns[:position], opening=True)
            whole = self._render(turns[: position + 1], opening=False)
            if not (opening.startswith(done) and whole.startswith(opening)):
                raise Precondition(
                    "the chat template rewrites earlier turns, so the assistant's tokens cannot be told apart",
                    hint="use conversations of a single question and answer with this model",
                )
            last = truncated and position == len(turns) - 1
            answer = self._answer(whole[len(opening) :], turn["content"], truncated=last)
            for text, counts in ((opening[len(done) :], False), (answer, True)):
                piece = self._encode(text)
                ids += piece
                mask += [counts] * len(piece)
            done = opening + answer
        return TokenizedConversation(ids, mask)

    def _answer(self, rest: str, content: str, *, truncated: bool) -> str:
        if truncated:
            said = content if content in rest else content.strip()
            if said not in rest:
                raise Precondition(
                    "the chat template rewrites a cut-off answer, so its end cannot be found",
                    hint="use whole answers with this model: leave the truncated ones out of the data file",
                )
            return rest[: rest.index(said) + len(said)]
        end = rest.find(self.eos_token) if self.eos_token else -1
        return rest if end < 0 else rest[: end + len(self.eos_token)]

    def _render(self, turns: Sequence[Turn], *, opening: bool) -> str:
        try:
            given = {**self._names, **self._variables, "messages": list(turns), "add_generation_prompt": opening}
            return self._template.render(given)
        except jinja2.TemplateError as error:
            raise Precondition(
                f"the chat template refuses a conversation: {error}", hint="mend the data file"
            ) from error


def _compile(model: Path, source: str) -> jinja2.Template:
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise Precondition(
            f"the chat template of {model} cannot be read: {error}", hint="fetch the model's files again"
        ) from error


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = _raise_template_error
    environment.globals["strftime_now"] = time.strftime
    environment.filters["tojson"] = _to_json
    return environment


def _raise_template_error(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: object, **options: Any) -> str:  # noqa: ANN401 - json.dumps' own options
    return json.dumps(value, ensure_ascii=False, **options)


def _template_source(model: Path, settings: dict[str, Any]) -> str:
    file = model / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
    if isinstance(source, list):
        source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
    if not isinstance(source, str):
        raise Precondition(f"{model} has no chat template", hint="use an instruction-tuned target")
    return source


def _tokenizer(model: Path) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str]]:
    file = model / "tokenizer.json"
    if file.is_file():
        from tokenizers import Tokenizer  # noqa: PLC0415 - compiled, and not needed to import this module

        tokenizer = Tokenizer.from_file(str(file))
        return (
            lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
            lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False)),
        )
    from transformers import AutoTokenizer  # noqa: PLC0415 - slow to import; only for models without tokenizer.json

    slow = AutoTokenizer.from_pretrained(str(model), trust_remote_code=True)
    return lambda text: list(slow.encode(text, add_special_tokens=False)), lambda ids: str(slow.decode(ids))


def hash_chat_template(model: Path, variables: Mapping[str, bool | float | str]) -> str:
    """The SHA-256 of a model's chat template with its variables; raises Precondition where it has none."""
    return _hash(_template_source(model, _read_json(model / "tokenizer_config.json")), variables)


def _hash(source: str, variables: Mapping[str, bool | float | str]) -> str:
    told = f"\0{json.dumps(dict(variables), sort_keys=True)}" if variables else ""
    return hashlib.sha256(f"{source}{told}".encode()).hexdigest()


def hash_tokenizer(model: Path) -> str:
    """The SHA-256 of a model's tokenizer files."""
    digest = hashlib.sha256()
    for name in ("tokenizer.json", "tiktoken.model", "tokenizer.model"):
        if (model / name).is_file():
            digest.update((model / name).read_bytes())
    return digest.hexdigest()


def _token_text(token: object) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Precondition(
            f"{path} is missing", hint="name a Hugging Face model directory with its tokenizer"
        ) from None
    except ValueError as error:
        raise Precondition(f"{path} is no JSON: {error}", hint="fetch the model's files again") from error
