"""Settings of a run file in words; pure."""

from collections.abc import Mapping
from typing import Any

from console.state.sanitize import one_line

RECAPTURES = (
    "[engine] also captures the hidden states: with such settings the next run makes the store, the mapping and the drafter anew, "
    "and sets aside what is there. To keep them, give the run file a [serving] of its own and tune that"
)
"""What it costs to apply a winner that `recaptures`."""


def settings_words(settings: Mapping[str, Any]) -> str:
    """`{"speculation.num_steps": 3}` -> `speculation.num_steps=3`; nothing is what the run file has."""
    words = ", ".join(f"{key}={value}" for key, value in settings.items())
    return one_line(words) or "as the run file has it"
