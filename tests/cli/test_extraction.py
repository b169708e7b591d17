"""`roost extraction`: what it asks the host for, what it prints, and how it ends."""

import json

import msgspec
import pytest
from protocol_samples import EVENTS, EXTRACTION_PLAN, JOB, SERVER

from remote.protocol.jobs import Finished, JobResult, Running
from remote.protocol.progress import ExtractionPlanned, SampleQuarantined, ServerReady
from remote.protocol.requests import ResolveExtraction, StartJob
from remote.protocol.specs import StoreExportSpec, StoreImportSpec, StoreMergeSpec, StoreVerificationSpec

PLANNED = next(event for event in EVENTS if isinstance(event, ExtractionPlanned))
ENDED = Finished(started_at=1.0, ended_at=2.0, outcome="succeeded", exit_code=0, signal=None, reason="done")


def started(played_host) -> object:
    """The spec of the one job that was asked for."""
    (request,) = [request for request in played_host.asked if isinstance(request, StartJob)]
    return request.spec


@pytest.fixture(autouse=True)
def _quick(played_host) -> None:
    played_host.started_as = ENDED
    played_host.planned = msgspec.structs.replace(
        PLANNED, bytes_free=PLANNED.bytes_needed + PLANNED.keep_free_bytes, inodes_free=None
    )


def test_a_plan_says_the_bytes_and_shows_a_sample(played_host, roost) -> None:
    told = roost("extraction", "plan", "embedded")
    assert told.exit_code == 0
    assert PLANNED.sample_id in told.stdout
    document = json.loads(roost("extraction", "plan", "embedded", "--json").stdout)
    assert document["extraction_plan"]["bytes_total"] == PLANNED.bytes_total


def test_a_plan_without_room_is_an_unmet_precondition(played_host, roost) -> None:
    played_host.planned = msgspec.structs.replace(played_host.planned, bytes_free=played_host.planned.bytes_free - 1)
    told = roost("extraction", "plan", "embedded")
    assert told.exit_code == 5
    assert "it does not fit" in told.stdout


def test_an_extraction_says_how_many_samples_it_leaves_out_for_which_reason(played_host, roost) -> None:
    played_host.left_out = [SampleQuarantined(sample_id=f"s{n}", reason="no answer") for n in range(5)]
    told = json.loads(roost("extraction", "show", "extraction-1", "--json").stdout)["extraction_report"]
    assert [entry["sample_id"] for entry in told["quarantine"]] == ["s0", "s1", "s2", "s3", "s4"]
    assert (told["quarantined"], told["omitted"]) == (5, 0)
    assert told["reasons"] == [{"type": "quarantine_reason", "reason": "no answer within 2048 tokens", "samples": 2}]
    assert told["advanced"]["tokens_per_s"] == 512.0
    assert told["age_s"] > 0
    shown = roost("extraction", "show", "extraction-1", "--limit", "3").stdout
    for words in ("10/64 samples", "512 tok/s", "56 s left", "disk now", "2 x no answer", "s2: no answer", "2 more"):
        assert words in shown
    assert "s3" not in shown


def test_a_whole_store_is_verified_unless_a_number_is_given(played_host, roost) -> None:
    assert roost("extraction", "verify", "runs/a/store").exit_code == 0
    assert started(played_host) == StoreVerificationSpec(store="runs/a/store", samples=None, seed=0, recapture=None)


def test_a_damaged_store_ends_with_5(played_host, roost) -> None:
    reason = "shard-00000.safetensors has another hash"
    played_host.started_as = msgspec.structs.replace(ENDED, outcome="failed", exit_code=5, reason=reason)
    told = roost("extraction", "verify", "runs/a/store", "--samples", "3", "--seed", "7", "--json")
    assert told.exit_code == 5
    assert json.loads(told.stdout)["verification"]["job"]["state"]["reason"] == reason
    spec = started(played_host)
    assert isinstance(spec, StoreVerificationSpec)
    assert (spec.samples, spec.seed) == (3, 7)


def test_samples_are_captured_again_only_by_a_server_that_captures(played_host, roost) -> None:
    played_host.jobs = [JOB]
    told = roost("extraction", "verify", "runs/a/store", "--server", JOB.job_id)
    assert told.exit_code == 5
    assert not any(isinstance(request, StartJob) for request in played_host.asked)


def test_an_export_and_its_figures(played_host, roost) -> None:
    played_host.started_result = JobResult(outputs=[], summary={"samples": 12})
    told = roost("extraction", "export", "speculators", "runs/a/store", "theirs")
    assert told.exit_code == 0
    assert "12" in told.stdout
    assert started(played_host) == StoreExportSpec(layout="speculators", store="runs/a/store", directory="theirs")


def test_an_import_names_the_target_and_its_layers(played_host, roost) -> None:
    arguments = ("extraction", "import", "specforge", "theirs", "runs/a/store", "--model", "models/m")
    assert roost(*arguments, "--layer-ids", "2,15,27").exit_code == 0
    spec = StoreImportSpec(
        layout="specforge", directory="theirs", store="runs/a/store", target_model="models/m", layer_ids=[2, 15, 27]
    )
    assert started(played_host) == spec


def test_an_import_says_with_which_variables_of_the_template_it_was_read(played_host, roost) -> None:
    arguments = ("extraction", "import", "specforge", "theirs", "s", "--model", "m", "--layer-ids", "2")
    assert roost(*arguments, "--template", "thinking=false", "--template", "effort=not much").exit_code == 0
    assert started(played_host).chat_template_kwargs == {"thinking": False, "effort": "not much"}
    told = roost(*arguments, "--template", "thinking")
    assert told.exit_code == 2
    assert "thinking=false" in told.stderr


def serving(played_host) -> str:
    """A server that captures and is up."""
    server = msgspec.structs.replace(
        JOB, job_id="serving", agent="server", spec=SERVER, state=Running(since=1.0, pid=7)
    )
    played_host.jobs = [server]
    played_host.server_events = [event for event in EVENTS if isinstance(event, ServerReady)]
    return "serving"


def test_a_part_is_extracted_through_a_server_that_captures(played_host, roost) -> None:
    played_host.extraction_plan = msgspec.structs.replace(EXTRACTION_PLAN, problems=[])
    told = roost("extraction", "start", "embedded", "--server", serving(played_host), "--part", "1/2", "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["extraction"]["job"]["job_id"].startswith("extraction-")
    (asked,) = [request for request in played_host.asked if isinstance(request, ResolveExtraction)]
    assert (asked.part, asked.capture) == ((1, 2), SERVER.capture)
    assert started(played_host) == EXTRACTION_PLAN.spec


def test_what_stands_in_the_way_of_an_extraction_is_an_unmet_precondition(played_host, roost) -> None:
    told = roost("extraction", "start", "embedded", "--server", serving(played_host))
    assert told.exit_code == 5
    assert EXTRACTION_PLAN.problems[0] in told.stderr


def test_a_store_that_is_there_is_not_extracted_again(played_host, roost) -> None:
    played_host.extraction_plan = msgspec.structs.replace(EXTRACTION_PLAN, problems=[], action="skip")
    told = roost("extraction", "start", "embedded", "--server", serving(played_host))
    assert told.exit_code == 0
    assert "is there already" in told.stdout
    assert not any(isinstance(request, StartJob) for request in played_host.asked)


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b"])
def test_a_part_that_is_none_is_a_usage_error(played_host, roost, part: str) -> None:
    assert roost("extraction", "start", "embedded", "--server", "serving", "--part", part).exit_code == 2


def test_parts_are_merged_all_at_once(played_host, roost) -> None:
    assert roost("extraction", "merge", "a", "b", "--into", "runs/a/store").exit_code == 0
    assert started(played_host) == StoreMergeSpec(parts=["a", "b"], store="runs/a/store")
    assert roost("extraction", "merge", "a", "--into", "runs/a/store").exit_code == 2


@pytest.mark.parametrize("ids", ["2,x", "2,-1", "", "2;3"])
def test_layer_ids_that_are_none_are_a_usage_error(played_host, roost, ids: str) -> None:
    arguments = ("extraction", "import", "specforge", "theirs", "runs/a/store", "--model", "m", "--layer-ids", ids)
    told = roost(*arguments)
    assert told.exit_code == 2
    assert "2,15,27" in told.stderr
    assert not played_host.asked
