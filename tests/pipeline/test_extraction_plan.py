"""The plan of an extraction: exact, from the conversations alone."""

import json
from pathlib import Path

import pytest

from remote.errors import NotFound
from remote.pipeline.extraction_plan import plan_extraction

FIXTURE = Path(__file__).parents[1] / "fixtures/tiny_target"
DOCUMENT = f"""
preset = "tiny"
[target]
model = "{FIXTURE / "model"}"
[data]
train = "{FIXTURE / "conversations/tiny_eval.jsonl"}"
"""


def test_a_plan_counts_samples_tokens_and_bytes_and_shows_one(tmp_path: Path) -> None:
    found = plan_extraction(DOCUMENT, {}, root=tmp_path)
    assert found.samples == 24
    assert 0 < found.loss_tokens < found.tokens
    hidden = json.loads((FIXTURE / "model/config.json").read_bytes())["hidden_size"]
    states = found.tokens * (4 * hidden * 2 + 9)
    assert states < found.bytes_total < states + (1 << 18)
    assert found.bytes_needed == found.bytes_total
    assert "⟦" in found.sample_text
    assert not list(tmp_path.iterdir())


def test_a_plan_without_conversations_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no model"):
        plan_extraction(DOCUMENT, {"target.model": "nowhere"}, root=tmp_path)
