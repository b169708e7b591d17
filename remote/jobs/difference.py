"""What differs between two descriptions, in words (pure)."""

from typing import Any

import msgspec

_MOST = 3
_MOST_CHARACTERS = 60


def differences(there: Any, asked: Any) -> list[str]:  # noqa: ANN401 - whatever msgspec encodes
    """`key: value there, asked for another` for every leaf that differs, in order."""
    return _differences("", msgspec.to_builtins(there), msgspec.to_builtins(asked))


def few_words(found: list[str]) -> str:
    """The first differences, and how many more there are."""
    rest = len(found) - _MOST
    return "; ".join(found[:_MOST]) + (f"; and {rest} more" if rest > 0 else "")


def _differences(place: str, there: Any, asked: Any) -> list[str]:  # noqa: ANN401
    if there == asked:
        return []
    if isinstance(there, dict) and isinstance(asked, dict):
        return [
            words
            for key in dict.fromkeys([*there, *asked])
            for words in _differences(f"{place}.{key}" if place else str(key), there.get(key), asked.get(key))
        ]
    return [f"{place or 'all of it'} is {_short(there)} there, asked for is {_short(asked)}"]


def _short(value: Any) -> str:  # noqa: ANN401
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
