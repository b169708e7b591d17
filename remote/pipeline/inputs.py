"""What a run reads, described by its content: the target and the conversations."""

import codecs
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from remote.agents.training.latent import Latent, read_latent
from remote.artifacts.conversations import parse_conversation, read_prompts
from remote.artifacts.manifest import hash_file
from remote.errors import NotFound, Precondition

_HASHED_SUFFIXES = (".json", ".jinja", ".model", ".txt", ".py")
_WEIGHT_SUFFIXES = (".safetensors", ".bin")
_BYTES_PER_TOKEN = 3
"""English text has about four bytes a token; three makes an estimate that is rather too high, as a disk check wants it."""
_TOKENS_PER_TURN = 8
_TOKENS_PER_CONVERSATION = 32
"""Roles, separators and a default system prompt, roughly."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A Hugging Face model directory; `fingerprint` covers configuration, tokenizer, and names and sizes of the weights."""

    path: str
    architecture: str
    num_hidden_layers: int
    hidden_size: int
    vocab_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    fingerprint: str
    latent: Latent | None = None


class Conversations(msgspec.Struct, frozen=True, kw_only=True):
    """A JSONL file of conversations; `tokens` is an upper estimate, each conversation cut at the run's `max_length`."""

    path: str
    sha256: str
    count: int
    tokens: int


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """A JSONL file of prompts that both arms answer."""

    path: str
    sha256: str
    count: int


def describe_target(model: Path) -> Target:
    """Read the target's description; raises NotFound when there is no model, Precondition when it cannot be read."""
    config_path = model / "config.json"
    if not config_path.is_file():
        raise NotFound(
            f"there is no model at {model} (no config.json)",
            hint="Put the Hugging Face directory of the target there, or name another one as target.model.",
        )
    config = _read_json(config_path)
    text = config.get("text_config") or config
    try:
        heads = int(text["num_attention_heads"])
        return Target(
            path=str(model),
            architecture=config["architectures"][0],
            num_hidden_layers=int(text["num_hidden_layers"]),
            hidden_size=int(text["hidden_size"]),
            vocab_size=int(text["vocab_size"]),
            intermediate_size=int(text["intermediate_size"]),
            num_attention_heads=heads,
            num_key_value_heads=int(text.get("num_key_value_heads") or heads),
            head_dim=int(text.get("head_dim") or text["hidden_size"] // heads),
            fingerprint=_hash_model(model),
            latent=read_latent(text),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Precondition(f"{config_path} does not describe a language model: {error!r}") from error


def describe_conversations(path: Path, *, max_samples: int | None, max_length: int) -> Conversations:
    """Read a file of conversations once; raises NotFound, or Precondition with the line that is none."""
    if not path.is_file():
        raise NotFound(
            f"there are no conversations at {path}",
            hint='Put a JSONL file there, one {"id", "conversations": [{"role", "content"}, …]} a line.',
        )
    digest, count, tokens = hashlib.sha256(), 0, 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            digest.update(line)
            if not line.strip():
                continue
            count += 1
            if max_samples is None or count <= max_samples:
                tokens += min(max_length, _tokens_of(line, path, number))
    if count == 0:
        raise Precondition(f"{path} holds no conversation")
    return Conversations(
        path=str(path), sha256=digest.hexdigest(), count=min(count, max_samples or count), tokens=tokens
    )


def describe_prompts(path: Path) -> Prompts:
    """Read a file of prompts or held-out conversations once; raises NotFound, or Precondition with the line that is none."""
    if not path.is_file():
        raise NotFound(
            f"there are no prompts at {path}",
            hint="Put a JSONL file there: held-out conversations, or prompts in the format of MT-Bench.",
        )
    return Prompts(path=str(path), sha256=hash_file(path), count=len(read_prompts(path)))


def estimate_tokens(turns: list[str]) -> int:
    """An upper estimate of a conversation's tokens from the text of its turns."""
    text = sum(len(turn.encode()) for turn in turns)
    return -(-text // _BYTES_PER_TOKEN) + _TOKENS_PER_TURN * len(turns) + _TOKENS_PER_CONVERSATION


def _tokens_of(line: bytes, path: Path, number: int) -> int:
    """How many tokens a conversation has, or an upper estimate where it is text."""
    try:
        read = parse_conversation(line.removeprefix(codecs.BOM_UTF8), number)
    except (ValueError, RecursionError) as error:
        raise Precondition(f"{path}, line {number}, is no conversation: {error}") from error
    if read.input_ids is not None:
        return len(read.input_ids)
    return estimate_tokens([turn["content"] for turn in read.conversations])


def _hash_model(model: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(model.iterdir()):
        if path.suffix in _WEIGHT_SUFFIXES:
            digest.update(f"{path.name}\0{path.stat().st_size}\n".encode())
        elif path.is_file() and path.suffix in _HASHED_SUFFIXES:
            digest.update(f"{path.name}\0{hash_file(path)}\n".encode())
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Precondition(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Precondition(f"{path} is no JSON object")
    return content
