"""What a target's directory says of its tokens: how many, which are special, what they decode to."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remote.errors import Precondition


def target_vocab_size(model: Path) -> int:
    """The size of a target's vocabulary; raises Precondition where its config does not say it."""
    config = _read(model / "config.json")
    size = _text_part(config).get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise Precondition(
            f"{model / 'config.json'} names no vocab_size", hint="name the Hugging Face directory of the target"
        )
    return size


def special_ids(model: Path) -> list[int]:
    """The ids of a target's special tokens, as its tokenizer's files list them, ascending."""
    added = [entry for entry in _read(model / "tokenizer.json").get("added_tokens", []) if entry.get("special")]
    ids = {entry["id"] for entry in added}
    settings = _read(model / "tokenizer_config.json").get("added_tokens_decoder", {})
    ids |= {int(number) for number, entry in settings.items() if entry.get("special")}
    return sorted(ids)


def end_ids(model: Path) -> list[int]:
    """The ids with which a target ends an answer, ascending."""
    named = [_read(model / name).get("eos_token_id") for name in ("config.json", "generation_config.json")]
    named.append(_text_part(_read(model / "config.json")).get("eos_token_id"))
    found = {one for value in named for one in (value if isinstance(value, list) else [value]) if isinstance(one, int)}
    return sorted(found)


def decode_tokens(model: Path, ids: Sequence[int]) -> list[str | None]:
    """What each token decodes to by itself; None where the tokenizer does not know it or cannot be read."""
    file = model / "tokenizer.json"
    if file.is_file():
        from tokenizers import Tokenizer  # noqa: PLC0415 - compiled, and not needed to import this module

        tokenizer = Tokenizer.from_file(str(file))
        return [tokenizer.decode([token], skip_special_tokens=False) or tokenizer.id_to_token(token) for token in ids]
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - slow to import; only for models without tokenizer.json

        slow = AutoTokenizer.from_pretrained(str(model), trust_remote_code=True)
        return [slow.decode([token]) for token in ids]
    except (ImportError, OSError, ValueError):
        return [None] * len(ids)


def _text_part(config: dict[str, Any]) -> dict[str, Any]:
    part = config.get("text_config")
    return part if isinstance(part, dict) else config


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, empty where the file is missing; raises Precondition where it is none."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise Precondition(f"{path} cannot be read: {error}", hint="fetch the model's files again") from error
    if not isinstance(content, dict):
        raise Precondition(f"{path} is no JSON object", hint="fetch the model's files again")
    return content
