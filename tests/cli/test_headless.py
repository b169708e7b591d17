"""What scripts and agents rely on: documents with a schema, fields, no questions, waits that end."""

import ast
import asyncio
import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import jsonschema
import msgspec
import pytest
import typer
from played_host import NOW, sample_at
from protocol_samples import APPROVAL, JOB, MAPPING_REPORT, TRASH_ENTRY
from typer.core import TyperGroup

from console.cli.main import app
from console.cli.spec import VERB_DOCUMENTS
from console.documents import DOCUMENTS, log_text, require_field, schema_of, schemas, select
from console.ui.keymap import ACTIONS
from remote.protocol.approvals import AskApproval, DecideApproval
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import JobChanged
from remote.protocol.jobs import Finished, Paused, Queued, Running
from remote.protocol.requests import LogPage, StartJob, StopJob
from tests.link.command import name_in_configuration
from tests.link.servers import embedded, home

__all__ = ["embedded", "home"]

CLI = Path(__file__).resolve().parents[2] / "console" / "cli"
OVER = Finished(started_at=NOW - 9, ended_at=NOW - 1, outcome="succeeded", exit_code=0, signal=None, reason="verified")


def verbs(command=None, words=()):
    command = typer.main.get_command(app) if command is None else command
    if isinstance(command, TyperGroup):
        return [verb for name, each in command.commands.items() for verb in verbs(each, (*words, name))]
    return [(" ".join(words), command)]


def calls_of(name: str) -> set[str]:
    """The first words that the command's source gives to the function `name`."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in CLI.glob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {
        call.args[0].value
        for call in calls
        if getattr(call.func, "id", "") == name and isinstance(call.args[0], ast.Constant)
    }


def check(told) -> dict:
    """The document on stdout, held against its schema."""
    document = json.loads(told.stdout)
    (name,) = set(document) - {"schema_version"}
    jsonschema.validate(document, schema_of(name))
    return document[name]


def test_every_verb_says_which_documents_it_prints():
    with_json = {name for name, command in verbs() if any(option.name == "as_json" for option in command.params)}
    assert with_json == set(VERB_DOCUMENTS)
    assert {name for names in VERB_DOCUMENTS.values() for name in names} | {"error"} == set(DOCUMENTS)


def test_every_document_that_is_printed_has_a_schema():
    assert calls_of("print_document") | calls_of("print_record") <= set(DOCUMENTS)


def test_only_what_opens_a_program_or_serves_one_has_no_document():
    assert {name for name, _ in verbs()} - set(VERB_DOCUMENTS) <= {"mcp", "browser"}


def test_the_schemas_are_schemas():
    documents, definitions = schemas()
    assert set(documents) == set(DOCUMENTS)
    jsonschema.Draft202012Validator.check_schema({"properties": documents, "$defs": definitions})


def test_spec_says_what_the_verbs_take(roost):
    found = check(roost("spec", "--json"))
    stop = next(verb for verb in found["verbs"] if verb["verb"] == "stop")
    assert {"--confirm", "--host", "--json", "--no-input", "--fields"} <= {each["name"] for each in stop["parameters"]}
    assert found["exit_codes"]["confirmation"] == 6
    assert roost("spec", "job", "--json").exit_code == 0
    assert roost("spec", "jop", "--json").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("jobs",),
        ("status", "extraction-1"),
        ("telemetry",),
        ("telemetry", "--topology"),
        ("verdict", "extraction-1"),
        ("extraction", "show", "extraction-1"),
        ("server", "figures", "extraction-1"),
        ("server", "start", "embedded", "--dry-run"),
        ("server", "tune", "embedded", "--dry-run"),
        ("server", "tuning", "extraction-1"),
        ("hosts", "list"),
        ("journal",),
        ("demo", "--scenario", "list"),
        ("stop", "extraction-1"),
        ("approvals", "list"),
        ("notifications", "list"),
        ("notifications", "try"),
        ("approvals", "refuse", "approval-1f2e3d4c", "--confirm", "0123456789abcdef"),
    ],
)
def test_a_document_is_as_its_schema_says(words, recorded, roost, embedded_data):
    recorded.jobs = [msgspec.structs.replace(JOB, job_id="extraction-1")]
    check(roost(*words, "--json"))


def test_every_line_of_a_stream_is_a_document(recorded, roost):
    lines = roost("telemetry", "--since", "5s", "--json").stdout.splitlines()
    assert len(lines) > 2
    for line in lines:
        jsonschema.validate(json.loads(line), schema_of("telemetry"))


def test_fields_choose_and_a_misspelt_one_is_refused_before_anything_happens(played_host, roost):
    played_host.jobs = [JOB, msgspec.structs.replace(JOB, job_id="other", state=Queued(since=NOW))]
    told = roost("jobs", "--json", "--fields", "job_id,state.pid")
    assert json.loads(told.stdout)["jobs"] == [
        {"job_id": JOB.job_id, "state.pid": getattr(JOB.state, "pid", None)},
        {"job_id": "other", "state.pid": None},
    ]
    asked = len(played_host.asked)
    refused = roost("jobs", "--json", "--fields", "jobid")
    assert refused.exit_code == 2
    assert "'jobid'" in check(refused)["message"]
    assert len(played_host.asked) == asked
    assert roost("jobs", "--fields", "job_id").exit_code == 2


def test_fields_go_through_lists_and_maps():
    assert select({"a": [{"b": 1}, {"b": 2}], "c": 3}, ["a.b"]) == {"a.b": [1, 2]}
    require_field(["job"], "result.summary.anything")
    require_field(["telemetry"], "gpus.age_s")


@pytest.mark.parametrize("words", [("jop",), ("jobs", "--nope"), ("stop",), ("wait", "j", "--until", "never")])
def test_a_wrong_command_line_is_an_error_document(words, roost):
    told = roost(*words, "--json")
    assert told.exit_code == 2
    assert check(told)["code"] == "usage"


def on_a_terminal(*words: str, env=None) -> tuple[bytes, int]:
    """What a verb writes to a terminal that it also reads from, and its exit code."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, 0, attributes)
    process = subprocess.Popen(
        [sys.executable, "-m", "console.cli", *words], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    return written, process.wait(60)


def test_a_terminal_gets_the_same_bytes_as_a_pipe(embedded_data):
    words = ("spec", "log", "--json")
    piped = subprocess.run([sys.executable, "-m", "console.cli", *words], capture_output=True, check=True).stdout
    assert on_a_terminal(*words) == (piped, 0)


@pytest.mark.parametrize("option", ["--no-input", "--json"])
def test_nothing_is_asked_where_it_must_not_be(option, embedded):
    name_in_configuration(embedded)
    written, code = on_a_terminal("stop", "some-job", "--host", "lab", option)
    assert code == 2, "a job that is not there is nothing to ask a person about either"
    assert b"Stop some-job" not in written


def test_what_nobody_can_be_asked_about_goes_into_the_inbox(played_host, roost):
    told = roost("stop", "extraction-1", "--json")
    assert told.exit_code == 6
    error = check(told)
    assert error["approval_id"] == APPROVAL.approval_id
    assert error["next_command"] == f"roost approvals wait {APPROVAL.approval_id}"
    assert "roost stop extraction-1 --host embedded --confirm extraction-1" in error["hint"]
    (asked,) = [request for request in played_host.asked if isinstance(request, AskApproval)]
    assert isinstance(asked.request, StopJob)
    assert not [request for request in played_host.asked if isinstance(request, StopJob)]


def test_a_wrong_confirmation_is_none_and_asks_nobody(played_host, roost):
    assert roost("stop", "extraction-1", "--confirm", "extraction-2", "--json").exit_code == 6
    assert played_host.asked == []


@pytest.mark.parametrize(
    ("state", "more", "code"),
    [
        ("approved", {"done": True, "job_id": "extraction-1"}, 0),
        ("approved", {"error": ErrorInfo(code=ErrorCode.NOT_FOUND, message="it is gone")}, 2),
        ("overtaken", {"error": ErrorInfo(code=ErrorCode.CONFLICT, message="it changed")}, 5),
        ("refused", {}, 5),
        ("expired", {}, 5),
    ],
)
def test_a_wait_for_a_person_says_by_its_exit_code_what_was_decided(state, more, code, played_host, roost):
    played_host.approval = msgspec.structs.replace(APPROVAL, state=state, **more)
    told = roost("approvals", "wait", APPROVAL.approval_id, "--json")
    assert told.exit_code == code
    assert check(told)["state"] == state
    assert state in roost("approvals", "list").stdout or state in ("overtaken",)


def test_a_wait_for_a_person_ends(played_host, roost):
    told = roost("approvals", "wait", APPROVAL.approval_id, "--timeout", "0.05", "--json")
    assert told.exit_code == 4
    assert check(told)["next_command"] == f"roost approvals wait {APPROVAL.approval_id} --timeout 0.05"


def test_an_approval_is_of_what_was_seen(played_host, roost):
    unasked = roost("approvals", "approve", APPROVAL.approval_id, "--json")
    assert unasked.exit_code == 6
    assert check(unasked)["next_command"].endswith(f"--confirm {APPROVAL.fingerprint}")
    assert not [request for request in played_host.asked if isinstance(request, DecideApproval)]
    assert roost("approvals", "approve", APPROVAL.approval_id, "--confirm", "abc", "--json").exit_code == 0
    (decided,) = [request for request in played_host.asked if isinstance(request, DecideApproval)]
    assert (decided.fingerprint, decided.approve) == ("abc", True)


def test_a_wait_ends_where_it_was_told_to(played_host, roost):
    waiting = msgspec.structs.replace(JOB, job_id="work", state=Queued(since=NOW))
    played_host.jobs = [waiting]
    played_host.streamed = [
        JobChanged(job=msgspec.structs.replace(waiting, state=state))
        for state in (Running(since=NOW, pid=7), Paused(since=NOW, pid=7, reason="the disk is full"), OVER)
    ]
    assert check(roost("wait", "work", "--until", "running", "--json"))["state"]["type"] == "running"
    assert check(roost("wait", "work", "--until", "paused", "--json"))["state"]["type"] == "paused"
    assert check(roost("wait", "work", "--json"))["state"]["type"] == "finished"
    missed = roost("wait", "work", "--until", "stalled", "--json")
    assert missed.exit_code == 5
    assert check(missed)["next_command"] == "roost status work"


def test_a_wait_gives_up_in_time_and_says_how_to_go_on(played_host, roost, monkeypatch):
    async def silence():
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(played_host, "events", silence)
    played_host.jobs = [msgspec.structs.replace(JOB, job_id="work", state=Queued(since=NOW))]
    told = roost("wait", "work", "--until", "running", "--timeout", "0.05", "--json")
    assert told.exit_code == 4
    assert check(told)["retryable"] is True
    assert check(told)["next_command"] == "roost wait work --until running --timeout 0.05"


def test_the_same_key_is_the_same_job(played_host, roost):
    played_host.mapping_report = SOUND_MAPPING
    words = ("vocabulary", "copy", "a", "b", "--no-wait", "--key", "copy-1", "--json")
    first, again = check(roost(*words)), check(roost(*words))
    assert first["job"]["job_id"] == again["job"]["job_id"] == "mapping-copy-copy-1"
    assert {request.op_id for request in played_host.asked if isinstance(request, StartJob)} == {"copy-1"}
    assert roost("vocabulary", "copy", "a", "b", "--key", "No Key", "--json").exit_code == 2


SOUND_MAPPING = msgspec.structs.replace(MAPPING_REPORT, valid=True, layout="roost", provenance="roost")

WAITING = [
    ("vocabulary", "copy", "a", "b"),
    ("vocabulary", "convert", "a", "b"),
    ("vocabulary", "build", "b", "--from", "s", "--size", "9"),
    ("vocabulary", "coverage", "b", "--from", "s"),
    ("extraction", "verify", "s"),
    ("extraction", "export", "specforge", "s", "d"),
    ("extraction", "import", "specforge", "d", "s", "--model", "m", "--layer-ids", "1"),
]


@pytest.mark.parametrize("words", WAITING, ids=lambda words: " ".join(words[:2]))
def test_a_job_need_not_be_waited_for_and_no_wait_is_endless(words, played_host, roost, monkeypatch):
    async def silence():
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(played_host, "events", silence)
    played_host.mapping_report = SOUND_MAPPING
    played_host.started_as, played_host.started_result = Running(since=NOW, pid=7), None
    left = roost(*words, "--no-wait", "--json")
    assert left.exit_code == 0
    job_id = check(left)["job"]["job_id"]
    given_up = roost(*words, "--timeout", "0.05", "--json")
    assert given_up.exit_code == 4
    assert check(given_up)["next_command"].startswith(f"roost wait {job_id[:8]}")


def test_what_a_stop_would_end_is_shown_and_nothing_is_stopped(played_host, roost):
    run = msgspec.structs.replace(JOB, job_id="run-1", run_id=None, state=Running(since=NOW, pid=7))
    child = msgspec.structs.replace(run, job_id="run-1-server", run_id="run-1")
    ended = msgspec.structs.replace(child, job_id="run-1-extraction", state=OVER)
    played_host.jobs = [run, child, ended, msgspec.structs.replace(run, job_id="other")]
    told = check(roost("stop", "run-1", "--dry-run", "--json"))
    assert [job["job_id"] for job in told] == ["run-1", "run-1-server"]
    assert not [request for request in played_host.asked if isinstance(request, StopJob)]


def test_a_page_of_a_log_does_not_cut_a_character():
    data = "aé漢😀".encode()
    for end in range(1, len(data)):
        page = log_text(LogPage(job_id="j", offset=0, data=data[:end], start=0, size=len(data)))
        assert "\N{REPLACEMENT CHARACTER}" not in page.text or page.next_cursor == end == 1
        assert data[: page.next_cursor].decode() == page.text
    last = log_text(LogPage(job_id="j", offset=0, data=data[:-1], start=0, size=len(data) - 1))
    assert last.next_cursor == len(data) - 1


SCREEN_ONLY = {
    "follow": "scrolls",
    "sideways": "scrolls",
    "step": "scrolls",
    "pages": "turns",
    "jump": "moves the focus",
    "help_here": "explains",
    "page": "turns",
    "theme": "looks",
    "help_panel": "explains keys",
    "leave": "closes",
}
SHOWN_BY = {
    "approvals": "approvals list",
    "log": "logs",
    "diagnoses": "telemetry",
    "gpus": "telemetry",
    "command": "status",
}
"""What the screen shows of a job or a reading is a part of what these verbs print."""


def test_every_action_of_the_screen_is_a_verb_of_the_same_name():
    names = {name for name, _ in verbs()}
    for action in ACTIONS:
        name = action.action.partition("(")[0]
        assert SHOWN_BY.get(name, name) in names or name in SCREEN_ONLY, action


def operations_in(path: Path) -> set[str]:
    """The operations that the source files below `path` use, by their names."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "").startswith("operations")
    }


def test_the_screen_and_the_verbs_go_through_the_same_operations():
    """So they check the same and say the same."""
    within = {"follow_job", "find_mapping"}  # of wait_for_job and of plan_mapping_copy
    assert operations_in(CLI.parent / "ui" / "session.py") <= operations_in(CLI) | within


OF_A_TERMINAL = {
    "ask_passphrases_with",
    "keep_hosts_warm",
    "run_document",
    "Session",
    "REQUEST_TIMEOUT_S",
    "host_name_of",
    "find_host",
}
OF_PERSONS = {
    *("decide_approval", "trust_host", "set_secret", "remove_secret"),  # a yes, a key's owner, a token's value
    *(
        "prepare_host",
        "plan_environment",
        "check_host",
        "prepare_embedded",
        "stop_embedded",
    ),  # a host is a person's to set up
    *("start_demo", "stop_demos", "list_scenarios"),
    *("plan_allocation", "start_allocation", "read_allocation", "wait_for_allocation"),  # what a cluster lends costs
    *("running_jobs", "end_allocation"),
    *("try_webhook",),  # a webhook is a person's to set up
    *("start_run", "apply_winner"),  # agents start a run by its plan, and write their own files
}
STREAMED = {"watch", "host_events", "record", "wait_until_ready", "get_approval"}
"""Agents wait by `wait_for_job` and `wait_for_approval`, and read pages."""
OF_VERBS_ALONE = {
    *("read_history", "read_past_events", "read_sample_at"),  # agents read the newest sample
    *("bring_mapping", "refuse_copy"),  # agents pull, push and copy
}
OF_AGENTS = {"agent_policy", "is_petitioning", "petitioning", "record_refusal"}


def test_what_agents_have_is_what_the_verbs_have():
    """Each front door alone has what is named here with its reason, and nothing else."""
    by_agents = operations_in(CLI / "mcp")
    by_verbs = {name for path in CLI.glob("*.py") for name in operations_in(path)}
    assert by_agents - by_verbs == OF_AGENTS
    assert by_verbs - by_agents == OF_A_TERMINAL | OF_PERSONS | STREAMED | OF_VERBS_ALONE


def test_what_a_copy_would_do_is_shown_and_nothing_is_started(played_host, roost):
    played_host.mapping_report = SOUND_MAPPING
    told = roost("vocabulary", "copy", "a", "b", "--dry-run", "--json")
    plan = check(told)
    assert told.exit_code == 0
    assert (plan["destination"], plan["is_needed"], plan["replaces"]) == ("b", False, False)
    assert "there already" in roost("vocabulary", "copy", "a", "b", "--dry-run").stdout
    played_host.mapping_report = msgspec.structs.replace(MAPPING_REPORT, valid=False)
    assert roost("vocabulary", "copy", "a", "b", "--dry-run", "--json").exit_code == 5
    assert not [request for request in played_host.asked if isinstance(request, StartJob)]


def test_what_a_purge_would_delete_is_shown_and_nothing_is_deleted(played_host, roost):
    told = check(roost("storage", "purge", "--all", "--dry-run", "--json"))
    assert [entry["name"] for entry in told] == [TRASH_ENTRY.name]
    assert roost("storage", "purge", "absent", "--dry-run", "--json").exit_code == 2
    assert TRASH_ENTRY.name in roost("storage", "purge", TRASH_ENTRY.name, "--dry-run").stdout
    assert not [request for request in played_host.asked if isinstance(request, StartJob)]


def test_a_reading_is_aged(recorded, roost):
    recorded.recorded = [sample_at(NOW - 2)]
    assert check(roost("telemetry", "--json"))["age_s"] == 2.0
