"""`roost mcp` with the SDK's own client over standard input and output, on a host behind a real SSH server."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import jsonschema
import msgspec
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp_types import Implementation
from played_host import PlayedHost
from protocol_samples import EVENTS, JOB, SERVER, SERVER_PLAN

from console.cli.mcp.arguments import schema_of_arguments
from console.cli.mcp.counterparts import COUNTERPARTS
from console.cli.mcp.server import LARGEST_SCHEMA
from console.cli.mcp.tools import TOOLS
from console.cli.spec import VERB_DOCUMENTS
from console.config.policy import allows, stricter
from console.documents import DOCUMENTS, schema_of
from remote.jobs.store import JobStore
from remote.protocol.jobs import Running
from remote.protocol.progress import Note, ProgressRecord, ServerReady
from remote.protocol.requests import StartJob
from remote.protocol.specs import MappingCopySpec
from tests.artifacts.small_mappings import write_small
from tests.link.command import name_in_configuration, roost
from tests.link.servers import embedded, home
from tests.link_host.conftest import RELEASE, plan_program

__all__ = ["embedded", "home"]

SLEEP = "import time\ntime.sleep(600)"


@asynccontextmanager
async def agent(*options: str):
    """A client called planner that talks to `roost mcp`."""
    environment = {key: value for key, value in os.environ.items() if key.startswith(("XDG_", "PYTHON", "OMP_"))}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "console.cli", "mcp", *options],
        env=environment | {"PYTHONPATH": os.getcwd()},
    )
    async with Client(server, client_info=Implementation(name="planner", version="1")) as client:
        yield client


async def ask(client, name: str, **arguments):
    """The payload of a tool's answer, which is as its schema says, or its error."""
    told = await client.call_tool(name, arguments)
    (document,) = set(told.structured_content) - {"schema_version"}
    jsonschema.validate(told.structured_content, schema_of(document))
    assert told.is_error == (document == "error")
    return told.structured_content[document]


@pytest.fixture
def lab(embedded):
    name_in_configuration(embedded)
    return embedded


async def test_an_agent_copies_a_mapping_once_and_is_in_the_journal(lab, home):
    write_small(home.root / "mappings/a")
    words = {"host": "lab", "source": "mappings/a", "destination": "mappings/b"}
    async with agent() as client:
        first = await ask(client, "copy_mapping", key="copy-1", **words)
        again = await ask(client, "copy_mapping", key="copy-1", **words)
        job_id = first["job"]["job_id"]
        assert job_id == again["job"]["job_id"] == "mapping-copy-copy-1"
        said = []

        async def hear(_done, _total, message):
            said.append(message)

        over = await client.call_tool("wait_for_job", {"host": "lab", "job_id": job_id}, progress_callback=hear)
        assert over.structured_content["job"]["state"]["outcome"] == "succeeded"
        assert all(said), "progress comes in words; a job that is over already has none to tell"
        assert (await ask(client, "validate_mapping", host="lab", path="mappings/b"))["valid"]
        log = await client.read_resource(f"roost://lab/jobs/{job_id}/log")
        assert log.contents[0].mime_type == "text/plain"
        other = await ask(client, "copy_mapping", key="copy-1", **words | {"destination": "mappings/c"})
        assert other["code"] == "conflict"
        assert "mappings/c" in other["message"]
        refused, *done = (await ask(client, "read_journal", host="lab"))["entries"]
    assert (refused["outcome"], refused["code"]) == ("refused", "conflict")
    assert {(entry["actor"], entry["subject"], entry["outcome"]) for entry in done} == {("mcp:planner", job_id, "done")}


async def test_what_ends_or_moves_something_needs_a_confirmation_or_a_plan(lab, home):
    write_small(home.root / "mappings/a")
    async with agent() as client:
        wrong = await ask(client, "stop_job", host="lab", job_id="absent", confirm="other")
        assert (wrong["code"], wrong["approval_id"]) == ("confirmation", None)
        assert (await ask(client, "stop_job", host="lab", job_id="absent", confirm="absent"))["code"] == "not_found"
        assert (await ask(client, "apply_plan", host="lab", plan="f" * 64))["code"] == "not_found"
        assert (await ask(client, "reclaim", host="lab", paths=["mappings/a"], token="0-0"))["code"] == "precondition"

        refused = [
            entry for entry in (await ask(client, "read_journal", host="lab"))["entries"] if entry["action"] == "tool"
        ]
    assert {(entry["actor"], entry["subject"], entry["code"]) for entry in refused} >= {
        ("mcp:planner", "stop_job", "confirmation"),
        ("mcp:planner", "reclaim", "precondition"),
    }, "what was refused here is on the host's record"


async def test_a_person_is_asked_for_what_was_not_confirmed_and_the_agent_waits_for_the_answer(lab, home):
    write_small(home.root / "mappings/a")
    write_small(home.root / "mappings/b", vocab_size=70)
    words = {"host": "lab", "source": "mappings/a", "destination": "mappings/b", "replace": True, "key": "k"}
    async with agent() as client:
        assert (await ask(client, "copy_mapping", **words | {"source": "mappings/none"}))["code"] == "not_found"
        unsaid = await ask(client, "copy_mapping", **words | {"replace": False})
        assert (unsaid["code"], unsaid["approval_id"]) == ("conflict", None)
        assert unsaid["hint"].endswith("a person's decision: replace; the tool for it is inspect_mapping")
        asked = await ask(client, "copy_mapping", **words)
        assert asked["code"] == "confirmation"
        approval_id = asked["approval_id"]
        assert (await ask(client, "copy_mapping", **words))["approval_id"] == approval_id
        early = await ask(client, "wait_for_approval", host="lab", approval_id=approval_id, timeout_s=0.1)
        assert (early["code"], early["approval_id"]) == ("timeout", approval_id)
        assert early["hint"] == "the tool for it is wait_for_approval"
        waiting = asyncio.create_task(ask(client, "wait_for_approval", host="lab", approval_id=approval_id))
        listed = await asyncio.to_thread(roost, "approvals", "list", "--host", "lab", "--json")
        (seen,) = json.loads(listed.stdout)["approvals"]["approvals"]
        assert (seen["asked_by"], seen["request"]["spec"]["destination"]) == ("mcp:planner", "mappings/b")
        unasked = await asyncio.to_thread(roost, "approvals", "approve", approval_id, "--host", "lab", "--json")
        assert unasked.returncode == 6
        command = json.loads(unasked.stdout)["error"]["next_command"].split()[1:]
        done = await asyncio.to_thread(roost, *command, "--json")
        assert done.returncode == 0, done.stderr
        told = await waiting
        assert (told["state"], told["decided_by"], told["done"]) == ("approved", "cli", True)
        over = await ask(client, "wait_for_job", host="lab", job_id=told["job_id"])
        assert over["state"]["outcome"] == "succeeded"
        assert over["created_by"] == "mcp:planner"
    assert not any("approve" in tool.name or "refuse" in tool.name for tool in TOOLS), "no agent decides"


async def test_what_a_policy_forbids_is_asked_of_a_person(lab, home):
    write_small(home.root / "mappings/a")
    words = {"host": "lab", "source": "mappings/a", "destination": "mappings/b", "key": "k"}
    async with agent("--policy", "read-only") as client:
        assert await ask(client, "list_jobs", host="lab") == []
        asked = await ask(client, "copy_mapping", **words)
        assert asked["code"] == "confirmation"
        assert "read-only" in asked["message"]
        assert await ask(client, "list_jobs", host="lab") == []
        (seen,) = (await ask(client, "list_approvals", host="lab"))["approvals"]
        refuse = ("approvals", "refuse", seen["approval_id"], "--host", "lab", "--confirm", seen["fingerprint"])
        assert (await asyncio.to_thread(roost, *refuse, "--note", "not today")).returncode == 0
        told = await ask(client, "wait_for_approval", host="lab", approval_id=seen["approval_id"])
        assert (told["state"], told["note"], told["done"]) == ("refused", "not today", False)
    (home.root / "trash").mkdir(exist_ok=True)
    async with agent() as client:
        refused = await ask(client, "purge", host="lab", entries=["x"], confirm="lab")
        assert refused["code"] == "usage", "there is no such entry, so there is nothing to ask for"


async def test_what_is_wrong_is_said_in_the_same_documents(embedded_data):
    async with agent() as client:
        assert (await ask(client, "list_jobs", host="nowhere"))["code"] == "usage"
        wrong = await ask(client, "get_job", job="x")
        assert wrong["code"] == "usage"
        assert "unknown field" in wrong["message"]
        assert (await ask(client, "list_hosts")) == ["embedded"]
        assert (await client.call_tool("dance", {})).structured_content["error"]["code"] == "usage"
        with pytest.raises(MCPError):
            await client.read_resource("roost://lab/secrets")


async def test_tools_say_what_they_do_and_how_they_answer(embedded_data):
    async with agent() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        schema = await client.read_resource("roost://schemas/job")
    assert set(tools) == {tool.name for tool in TOOLS}
    for tool in TOOLS:
        told = tools[tool.name]
        assert tool.document in DOCUMENTS
        jsonschema.Draft202012Validator.check_schema(told.input_schema)
        assert told.annotations.read_only_hint == (tool.needs == "read-only")
        assert told.annotations.destructive_hint == tool.is_destructive
        assert not (tool.is_destructive and told.annotations.read_only_hint)
        assert len(str(told.output_schema)) < 2 * LARGEST_SCHEMA
    assert '"job"' in schema.contents[0].text


SOURCES = [{"path": "a.jsonl", "weight": 0.5}]
RUN = 'preset = "embedded"'
WORKING = [
    ("build_mapping", {"sources": SOURCES, "draft_vocab_size": 64, "destination": "b", "key": "k"}),
    ("convert_mapping", {"source": "a", "destination": "b", "layout": "specforge", "key": "k"}),
    ("measure_coverage", {"sources": SOURCES, "mapping": "a", "key": "k"}),
    ("read_coverage", {"job_id": "k"}),
    ("plan_mapping_copy", {"source": "a", "destination": "b"}),
    ("plan_training", {"run_file": RUN, "store": "s"}),
    ("start_training", {"run_file": RUN, "overrides": {"training.steps": "5"}, "key": "k"}),
    ("read_topology", {}),
    ("start_extraction", {"run_file": RUN, "server": "serving", "part": [1, 2], "key": "k"}),
    ("verify_store", {"store": "s", "server": "serving", "recaptured": 2, "key": "k"}),
    ("merge_stores", {"parts": ["a", "b"], "store": "s", "key": "k"}),
    ("export_store", {"layout": "specforge", "store": "s", "directory": "d", "key": "k"}),
    (
        "import_store",
        {
            "layout": "speculators",
            "directory": "d",
            "store": "s",
            "target_model": "m",
            "layer_ids": [2, 15, 27],
            "key": "k",
        },
    ),
    ("plan_server", {"run_file": RUN, "drafter": True}),
    ("start_server", {"run_file": RUN, "key": "k"}),
    ("plan_tuning", {"run_file": RUN}),
    ("start_tuning", {"run_file": RUN, "key": "k"}),
    ("read_tuning", {"job_id": "k"}),
    ("read_benchmark", {"job_id": "k"}),
]


@pytest.mark.parametrize(("name", "arguments"), WORKING, ids=[name for name, _ in WORKING])
async def test_a_tool_answers_as_its_document_says(name, arguments):
    tool = next(tool for tool in TOOLS if tool.name == name)
    jsonschema.validate(arguments, schema_of_arguments(tool.takes))
    host = PlayedHost()
    host.training_plan = msgspec.structs.replace(host.training_plan, problems=[])
    host.tuning_plan = msgspec.structs.replace(host.tuning_plan, problems=[])
    host.server_plan = msgspec.structs.replace(SERVER_PLAN, problems=[])
    host.jobs = [
        msgspec.structs.replace(JOB, job_id="serving", agent="server", spec=SERVER, state=Running(since=1.0, pid=7))
    ]
    host.server_events = [event for event in EVENTS if isinstance(event, ServerReady)]
    host.extraction_plan = msgspec.structs.replace(host.extraction_plan, problems=[])
    payload = await tool.work(host, msgspec.convert(arguments, tool.takes), lambda _: None)
    document = msgspec.json.encode({"schema_version": 1, tool.document: payload})
    jsonschema.validate(json.loads(document), schema_of(tool.document))
    started = [request for request in host.asked if isinstance(request, StartJob)]
    assert len(started) == (tool.needs != "read-only")
    assert all(request.op_id == "k" for request in started)


async def test_what_agents_make_and_bring_is_real(lab, home, tmp_path):
    write_small(home.root / "mappings/a")
    async with agent() as client:
        words = {"host": "lab", "source": "mappings/a", "destination": "mappings/there", "layout": "specforge"}
        made = await ask(client, "convert_mapping", key="c", **words)
        over = await ask(client, "wait_for_job", host="lab", job_id=made["job"]["job_id"])
        assert over["state"]["outcome"] == "succeeded"
        assert (await ask(client, "inspect_mapping", host="lab", path="mappings/there"))["report"][
            "layout"
        ] == "specforge"
        plan = await ask(client, "plan_mapping_copy", host="lab", source="mappings/a", destination="mappings/b")
        assert (plan["there"], plan["replaces"], plan["problems"]) == (None, False, [])
        copied = await ask(client, "copy_mapping", host="lab", source="mappings/a", destination="mappings/b", key="k")
        await ask(client, "wait_for_job", host="lab", job_id=copied["job"]["job_id"])
        said = []

        async def hear(_done, _total, message):
            said.append(message)

        here = str(tmp_path / "mapping")
        pulled = await client.call_tool(
            "pull_artifact", {"host": "lab", "artifact": "mappings/b", "local": here}, progress_callback=hear
        )
        assert pulled.structured_content["transfer"]["path"] == here
        assert any(" of " in message for message in said), "a transfer tells how far it is"
        again = await ask(client, "push_artifact", host="lab", local=here, remote="mappings/c")
        assert again["path"] == str(home.root / "mappings/c")
        assert (await ask(client, "validate_mapping", host="lab", path="mappings/c"))["valid"]
        missing = await ask(client, "start_training", host="lab", run_file=RUN, key="t")
        assert missing["code"] == "precondition", "there is nothing to train on"
    async with agent("--policy", "read-only") as client:
        refused = await ask(client, "push_artifact", host="lab", local=here, remote="mappings/d")
        assert refused["code"] == "precondition"
        newest = (await ask(client, "read_journal", host="lab"))["entries"][0]
    assert (newest["actor"], newest["action"], newest["subject"]) == ("mcp:planner", "tool", "push_artifact")


async def test_whoever_waits_for_a_job_hears_of_its_progress(lab, home):
    store = JobStore(home.root, RELEASE, sys.executable, plan=plan_program)
    job = store.start("talker", MappingCopySpec(source=SLEEP, destination="x"), actor="ann", op_id="op-1")
    told = ProgressRecord(seq=1, at=1.0, event=Note(level="info", text="half of it is done"))
    (home.root / "jobs/talker/progress.jsonl").write_bytes(msgspec.json.encode(told) + b"\n")
    said = asyncio.Queue()

    async def hear(done, _total, message):
        await said.put((done, message))

    async with agent() as client:
        waiting = asyncio.create_task(
            client.call_tool("wait_for_job", {"host": "lab", "job_id": job.job_id}, progress_callback=hear)
        )
        done, message = await said.get()
        assert done == 1.0
        assert "half of it is done" in message
        await ask(client, "stop_job", host="lab", job_id=job.job_id, confirm=job.job_id)
        assert (await waiting).structured_content["job"]["state"]["outcome"] == "stopped"


def test_the_tools_that_stand_for_verbs_are_there():
    assert set(COUNTERPARTS) <= set(VERB_DOCUMENTS)
    assert set(COUNTERPARTS.values()) <= {tool.name for tool in TOOLS}


def test_policies_are_ordered():
    assert allows("full", "operate")
    assert not allows("read-only", "operate")
    assert stricter("full", "operate") == stricter("operate", "full") == "operate"


def test_the_sdk_is_loaded_by_nothing_else():
    script = "import sys, console.cli.main; sys.exit(bool({'mcp', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
