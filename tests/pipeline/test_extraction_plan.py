"""The plan of an extraction: exact, from the conversations alone."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from remote.errors import NotFound, UsageError
from remote.pipeline.config import load_run
from remote.pipeline.extraction_plan import plan_extraction, resolve_extraction
from remote.pipeline.plan import draw_plan
from remote.protocol.requests import ResolveExtraction
from remote.protocol.specs import Capture

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


def request(**changes: object) -> ResolveExtraction:
    asked = ResolveExtraction(
        document=DOCUMENT,
        url="http://127.0.0.1:1",
        model=str(FIXTURE / "model"),
        capture=Capture(layer_ids=[1, 2, 3], spool_directory="/spool"),
        overrides={"extraction.layer_ids": "[1, 2, 3]"},
    )
    return msgspec.structs.replace(asked, **changes)


def test_parts_are_of_the_whole_and_share_the_samples_out(tmp_path: Path) -> None:
    whole = resolve_extraction(request(), root=tmp_path)
    parts = [resolve_extraction(request(part=(number, 3)), root=tmp_path) for number in (1, 2, 3)]
    assert whole.problems == [] == [problem for part in parts for problem in part.problems]
    assert {part.spec.part.whole for part in parts if part.spec.part} == {whole.spec.fingerprint}
    assert len({part.spec.fingerprint for part in [whole, *parts]}) == 4
    assert len({part.spec.store for part in [whole, *parts]}) == 4
    planned = [part.planned for part in parts if part.planned]
    assert whole.planned is not None
    assert sum(part.samples for part in planned) == whole.planned.samples
    assert sum(part.tokens for part in planned) == whole.planned.tokens


def test_a_store_without_room_stands_in_the_way_with_its_figures_unless_it_may_wait(tmp_path: Path) -> None:
    kept = {"extraction.keep_free_bytes": str(1 << 50)}
    (problem,) = resolve_extraction(request(overrides={**request().overrides, **kept}), root=tmp_path).problems
    assert "of which 1.0 PiB are to stay free" in problem
    waits = {**request().overrides, **kept, "extraction.when_short": '"wait"'}
    assert resolve_extraction(request(overrides=waits), root=tmp_path).problems == []


def test_what_the_run_would_extract_is_what_the_whole_is(tmp_path: Path) -> None:
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text((FIXTURE / "conversations/tiny_eval.jsonl").read_text().partition("\n")[2])
    run = load_run(DOCUMENT, {"extraction.layer_ids": "[1, 2, 3]", "data.evaluation": f'"{held_out}"'})
    _, blueprint = draw_plan(run, root=tmp_path, python=sys.executable)
    assert resolve_extraction(request(), root=tmp_path).spec.fingerprint == blueprint.fingerprints.extraction


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capture": Capture(layer_ids=[1, 2], spool_directory="/spool")}, "captures the layers"),
        ({"model": "/another/model"}, "the run's target is"),
    ],
)
def test_a_server_of_something_else_stands_in_the_way(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    (problem,) = resolve_extraction(request(**changes), root=tmp_path).problems
    assert words in problem


@pytest.mark.parametrize("part", [(3, 2), (1, 1)])
def test_a_part_that_cannot_be_is_refused(tmp_path: Path, part: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="there is no part"):
        resolve_extraction(request(part=part), root=tmp_path)
