"""Settings of a run file in words; pure."""

from collections.abc import Mapping
from typing import Any

from console.state.sanitize import one_line


def settings_words(settings: Mapping[str, Any]) -> str:
    """`{"speculation.num_steps": 3}` -> `speculation.num_steps=3`; nothing is what the run file has."""
    words = ", ".join(f"{key}={value}" for key, value in settings.items())
    return one_line(words) or "as the run file has it"
