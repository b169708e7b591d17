"""`roost vocabulary`."""

import json

import msgspec
import pytest
from protocol_samples import COVERAGE_REPORT, JOB, MAPPING_REPORT

from console.cli.jobs import hint_lines
from console.state.coverage import format_share, verdict_words
from remote.protocol.jobs import Finished
from remote.protocol.mappings import MappingBuildSpec, MappingConvertSpec, MappingCoverageSpec, TokenSource
from remote.protocol.progress import Note
from remote.protocol.requests import InspectMapping, StartJob, ValidateMapping
from remote.protocol.specs import MappingCopySpec


def ended(exit_code: int, outcome: str = "succeeded") -> Finished:
    return Finished(started_at=1.0, ended_at=2.0, outcome=outcome, exit_code=exit_code, signal=None, reason="")


@pytest.fixture
def sound(played_host):
    played_host.started_as = ended(0)
    played_host.mapping_report = msgspec.structs.replace(MAPPING_REPORT, layout="roost", valid=True, findings=[])
    return played_host


def started(host) -> object:
    (spec,) = [request.spec for request in host.asked if isinstance(request, StartJob)]
    return spec


def test_an_invalid_mapping_is_shown_with_its_fix_and_exits_5(played_host, roost) -> None:
    told = roost("vocabulary", "validate", "m", "--target", "t", "--drafter", "d", "--store", "s")
    assert told.exit_code == 5
    assert "NOT VALID" in told.stdout
    assert "fix: Build the mapping again." in told.stdout
    assert played_host.asked == [ValidateMapping(path="m", target_model="t", drafter="d", store="s")]
    document = json.loads(roost("vocabulary", "validate", "m", "--json").stdout)
    assert document["schema_version"] == 1
    assert document["mapping"]["findings"][0]["code"] == "not_sorted"


def test_an_inspection_says_where_it_came_from_and_who_has_it(played_host, roost) -> None:
    told = roost("vocabulary", "inspect", "m", "--target", "t")
    assert told.exit_code == 5, "it has findings of severity error"
    for words in ("made by roost vocabulary 2", "the same vocabulary: drafter", "backup: ", "with a draft id: 3 of 16"):
        assert words in told.stdout
    assert played_host.asked == [InspectMapping(path="m", target_model="t")]
    assert json.loads(roost("vocabulary", "inspect", "m", "--json").stdout)["inspection"]["lowest_id"] == 0


def test_a_build_names_its_sources_with_weights(sound, roost) -> None:
    arguments = ("--from", "runs/a/store", "--from", "x=y.jsonl=0.5", "--size", "9", "--force", "3", "--force-special")
    told = roost("vocabulary", "build", "mappings/new", *arguments, "--template", "thinking=false")
    assert told.exit_code == 0, told.stderr
    assert started(sound) == MappingBuildSpec(
        sources=[TokenSource(path="runs/a/store"), TokenSource(path="x=y.jsonl", weight=0.5)],
        draft_vocab_size=9,
        destination="mappings/new",
        counts="mappings/new-counts",
        forced=[3],
        force_special=True,
        chat_template_kwargs={"thinking": False},
    )


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf"])
def test_a_weight_that_is_none_is_refused(sound, roost, weight: str) -> None:
    assert roost("vocabulary", "build", "m", "--from", f"a={weight}", "--size", "9").exit_code == 2
    assert sound.asked == []


def test_coverage_below_the_minimum_exits_5_with_the_report(sound, roost) -> None:
    told = roost("vocabulary", "coverage", "m", "--from", "a", "--target", "t", "--minimum", "0.98", "--at", "7")
    assert told.exit_code == 5
    assert "covers 96.9%" in told.stdout
    assert "98.0% was asked for: too little" in told.stdout
    assert "no drafter exceeds an acceptance length of 3.750" in told.stdout
    assert '" Grüße"' in told.stdout
    spec = started(sound)
    assert isinstance(spec, MappingCoverageSpec)
    assert (spec.curve, spec.minimum_coverage) == ([7], 0.98)
    document = json.loads(roost("vocabulary", "coverage", "m", "--from", "a", "--json").stdout)
    assert document["coverage"]["report"]["missing_tokens"] == 58_000


def test_coverage_of_nothing_is_a_mistake_in_the_command(played_host, roost) -> None:
    assert roost("vocabulary", "coverage", "--from", "a").exit_code == 2
    assert played_host.asked == []


def test_copies_and_conversions_are_jobs(sound, roost) -> None:
    assert roost("vocabulary", "copy", "a", "b", "--replace").exit_code == 0
    assert started(sound) == MappingCopySpec(source="a", destination="b", replace=True)
    sound.asked.clear()
    assert roost("vocabulary", "convert", "a", "b", "--layout", "modelopt", "--target", "t").exit_code == 0
    assert started(sound) == MappingConvertSpec(source="a", destination="b", layout="modelopt", target_model="t")
    assert roost("vocabulary", "convert", "a", "b", "--layout", "gguf").exit_code == 2


def test_another_mapping_is_only_put_aside_with_a_persons_yes(sound, roost) -> None:
    (file, *rest) = sound.mapping_report.files
    other = msgspec.structs.replace(sound.mapping_report, files=[msgspec.structs.replace(file, sha256="0" * 64), *rest])
    sound.other_mappings["b"] = other
    unsaid = roost("vocabulary", "copy", "a", "b", "--json")
    assert (unsaid.exit_code, json.loads(unsaid.stdout)["error"]["code"]) == (5, "conflict")
    assert roost("vocabulary", "copy", "a", "b", "--replace", "--confirm", "a").exit_code == 6
    asked = roost("vocabulary", "copy", "a", "b", "--replace", "--json")
    assert (asked.exit_code, json.loads(asked.stdout)["error"]["approval_id"]) == (6, sound.approval.approval_id)
    assert not [request for request in sound.asked if isinstance(request, StartJob)]
    assert roost("vocabulary", "copy", "a", "b", "--replace", "--confirm", "b").exit_code == 0
    assert started(sound) == MappingCopySpec(source="a", destination="b", replace=True)


def test_a_failed_job_says_once_what_and_then_what_to_do(sound, roost) -> None:
    sound.started_as = msgspec.structs.replace(ended(5, "failed"), reason="b differs")
    sound.server_events = [Note(level="info", text="10 tokens"), Note(level="error", text="b differs")]
    told = roost("vocabulary", "copy", "a", "b")
    assert told.exit_code == 5
    assert told.stdout == ""
    assert told.stderr.count("b differs") == 1
    failed = msgspec.structs.replace(JOB, state=ended(5, "failed"), last_line="  hint: pass --replace")
    assert hint_lines(failed) == ["  hint: pass --replace"]
    assert hint_lines(msgspec.structs.replace(failed, state=ended(0))) == []


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.0, "0%"),
        (1.0, "100%"),
        (0.969, "96.9%"),
        (0.9999, "99.99%"),
        (0.0001, "0.01%"),
        (1 - 1e-9, ">99.9999%"),
        (1e-9, "<0.0001%"),
    ],
)
def test_a_share_keeps_the_digits_that_matter(share: float, words: str) -> None:
    assert format_share(share) == words


def test_a_mapping_as_good_as_any_of_its_size_is_said_to_be() -> None:
    best = msgspec.structs.replace(COVERAGE_REPORT, coverage=0.984375)
    assert "as much as any of its size can" in verdict_words(best)
    assert "enough" in verdict_words(best)
