"""Each cause of a weak drafter is told from the run's own figures, in the order in which to look."""

import pytest

from remote.pipeline.causes import FEW_CONVERSATIONS, find_causes
from remote.pipeline.evidence import Evidence
from remote.protocol.reports import Cause
from tests.pipeline.test_verdict import level

GOOD = Evidence(
    proposals=3,
    coverage=0.96,
    draft_vocab_size=32_000,
    target_vocab_size=163_840,
    captured_layer_ids=[3, 31, 59],
    served_layer_ids=[3, 31, 59],
    positions=32_768,
    served_context=32_768,
    window=4096,
    conversations=300_000,
    tokens=200_000_000,
    steps=20_000,
    trained_tokens=400_000_000,
    simulated_acceptance=2.9,
    first_accuracy=0.8,
)


def causes(known: Evidence, *, served: float = 2.7) -> dict[str, Cause]:
    found = find_causes(known, level([1.0] * 4, acceptance=served), [0.78, 0.6, 0.4])
    assert [one.cause for one in found] == ["coverage", "layer_ids", "context_length", "training_data", "serving"]
    return {one.cause: one for one in found}


def test_a_sound_drafter_has_no_suspect_and_says_its_figures() -> None:
    found = causes(GOOD)
    assert not any(one.suspect for one in found.values())
    assert "96.0%" in found["coverage"].text
    assert "3.77" in found["coverage"].text
    assert "3, 31, 59" in found["layer_ids"].text
    assert "read 2.0 times in 20,000 steps" in found["training_data"].text
    assert "right 80% of the time there and 78% here" in found["serving"].text


@pytest.mark.parametrize(
    ("cause", "changes", "words"),
    [
        ("coverage", {"coverage": 0.7}, "70.0%"),
        (
            "coverage",
            {"evaluated_coverage": 0.5},
            "96.0% of the tokens that it was trained to say and 50.0% of the target's",
        ),
        ("layer_ids", {"served_layer_ids": [2, 30, 58]}, "learned from layers 3, 31, 59 and is served with 2, 30, 58"),
        ("layer_ids", {"served_layer_ids": None}, "its config names no layers"),
        ("context_length", {"positions": 64}, "it knows 64 positions"),
        ("context_length", {"window": 80}, "4 of 4 evaluated texts are longer"),
        ("training_data", {"conversations": FEW_CONVERSATIONS - 1}, "49,999 conversations"),
        ("serving", {"simulated_acceptance": 4.2}, "not what was trained"),
    ],
)
def test_a_suspect_is_named_alone(cause: str, changes: dict[str, object], words: str) -> None:
    found = causes(GOOD._replace(**changes))
    assert [name for name, one in found.items() if one.suspect] == [cause]
    assert words in found[cause].text


def test_what_nobody_noted_is_neither_good_nor_bad() -> None:
    assert {one.suspect for one in causes(Evidence(proposals=3)).values()} == {None}


def test_positions_below_the_context_matter_only_where_texts_reach_them() -> None:
    assert causes(GOOD._replace(positions=2048))["context_length"].suspect is False
