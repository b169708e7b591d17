"""The inbox over a real link: who asks, who decides, and that exactly what was asked is done, once, or nothing."""

import sys
import time
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))
from protocol_samples import RUN

from remote.errors import RoostError
from remote.link.requests import Desk
from remote.link.telemetry import TelemetrySource
from remote.protocol.approvals import (
    MOST_WAITING,
    Approval,
    AskApproval,
    DecideApproval,
    GetApproval,
    ListApprovals,
    RecordRefusal,
)
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import ApprovalsWaiting
from remote.protocol.jobs import is_over
from remote.protocol.journal import ReadJournal
from remote.protocol.requests import Done, GetJob, StartJob, StopJob, Watch
from remote.protocol.specs import MappingCopySpec, PurgeSpec, RunSpec
from remote.protocol.storage import MoveToTrash, PlanReclaim, ReadStorage, RestoreFromTrash

SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(600)"


class AtDesk:
    """Asks the host's desk as a link does, without a process of its own."""

    def __init__(self, store, actor):
        self._desk = Desk(store, TelemetrySource(store), actor)

    def ask(self, request):
        try:
            return self._desk.answer(request)
        except RoostError as error:
            return error.info


@pytest.fixture
def agent(store):
    return AtDesk(store, "mcp:planner")


@pytest.fixture
def console(store):
    return AtDesk(store, "ann")


@pytest.fixture
def job(start):
    return start("kept", SLEEP)


def ask_to_stop(console, job_id="kept", op_id="op-1") -> Approval:
    request = StopJob(job_id=job_id, op_id=op_id, reason="enough")
    return console.ask(AskApproval(request=request, why="not confirmed")).approval


def decide(console, approval, *, approve=True, fingerprint=None):
    return console.ask(
        DecideApproval(
            approval_id=approval.approval_id,
            fingerprint=approval.fingerprint if fingerprint is None else fingerprint,
            approve=approve,
        )
    )


def is_running(console, job_id="kept") -> bool:
    return not is_over(console.ask(GetJob(job_id=job_id)).job.state) and not hasattr(
        console.ask(GetJob(job_id=job_id)).job.state, "requested_by"
    )


def test_what_was_asked_is_done_by_a_persons_yes_in_the_name_of_whoever_asked(agent, console, job):
    asked = ask_to_stop(agent)
    assert (asked.state, asked.asked_by, asked.subject) == ("waiting", "mcp:planner", "kept")
    assert asked.facts["state"] == "running"
    assert ask_to_stop(agent, op_id="op-2").approval_id == asked.approval_id, "the same again is the same request"
    assert agent.ask(GetApproval(approval_id=asked.approval_id)).approval == asked
    done = decide(console, asked).approval
    assert (done.state, done.decided_by, done.done, done.job_id) == ("approved", "ann", True, "kept")
    assert decide(console, asked).approval == done, "approved again it is not done again"
    assert agent.ask(GetApproval(approval_id=asked.approval_id)).approval == done
    entries = console.ask(ReadJournal()).entries
    told = [(entry.action, entry.actor, entry.outcome) for entry in entries]
    assert ("stop", "mcp:planner", "done") in told
    assert ("approve", "ann", "done") in told
    assert ("ask", "mcp:planner", "done") in told
    (stop,) = [entry for entry in entries if entry.action == "stop"]
    assert stop.approval == asked.approval_id


def test_no_agent_decides_and_nobody_decides_what_was_not_seen(agent, console, job):
    asked = ask_to_stop(agent)
    assert decide(agent, asked).code == ErrorCode.PRECONDITION
    assert decide(agent, asked, approve=False).code == ErrorCode.PRECONDITION
    assert decide(console, asked, fingerprint="0" * 16).code == ErrorCode.CONFLICT
    assert agent.ask(GetApproval(approval_id=asked.approval_id)).approval.state == "waiting"
    refused = [entry for entry in console.ask(ReadJournal()).entries if entry.outcome == "refused"]
    assert {entry.actor for entry in refused} == {"mcp:planner", "ann"}


def test_refused_is_refused(agent, console, job):
    asked = ask_to_stop(agent)
    assert decide(console, asked, approve=False).approval.state == "refused"
    assert decide(console, asked).code == ErrorCode.CONFLICT
    assert is_running(console)


def test_a_world_that_changed_forbids_what_was_asked(agent, console, job, start):
    asked = ask_to_stop(agent)
    console.ask(StopJob(job_id="kept", op_id="mine", reason="my own"))
    told = decide(console, asked)
    assert told.code == ErrorCode.CONFLICT
    found = agent.ask(GetApproval(approval_id=asked.approval_id)).approval
    assert (found.state, found.done) == ("overtaken", False)
    assert found.error is not None


def test_a_request_outlives_everybody_and_what_was_left_half_way_is_done_once(open_console, store, job):
    first = open_console()
    first.greet("mcp:planner")
    asked = ask_to_stop(first)
    first.close()
    half_way = msgspec.structs.replace(asked, state="approved", decided_by="ann", decided_at=time.time())
    store.inbox.keep(half_way)  # as the end of the approver's link leaves it, before the change was made
    again = open_console()
    again.greet("mcp:planner")
    found = again.ask(GetApproval(approval_id=asked.approval_id)).approval
    assert (found.state, found.done, found.job_id) == ("approved", True, "kept")
    assert again.ask(GetApproval(approval_id=asked.approval_id)).approval == found


def test_an_old_request_expires_and_is_not_approved(agent, console, store, job):
    asked = ask_to_stop(agent)
    store.inbox.keep(msgspec.structs.replace(asked, expires_at=time.time() - 1))
    assert agent.ask(GetApproval(approval_id=asked.approval_id)).approval.state == "expired"
    assert decide(console, asked).code == ErrorCode.CONFLICT
    assert ask_to_stop(agent).approval_id != asked.approval_id, "asked again it is another request"


def test_what_cannot_be_done_is_not_asked(agent):
    told = agent.ask(AskApproval(request=StopJob(job_id="absent", op_id="op-1", reason=""), why="x"))
    assert told.code == ErrorCode.NOT_FOUND
    assert agent.ask(ListApprovals()).approvals == []


def test_a_start_is_one_job_however_often_it_is_approved(agent, console):
    spec = MappingCopySpec(source=SLEEP, destination="copier", replace=True)
    asked = agent.ask(AskApproval(request=StartJob(job_id="copy-1", spec=spec, op_id="op-1"), why="x")).approval
    assert asked.facts == {"source": "nothing", "destination": "nothing"}
    assert decide(console, asked).approval.job_id == "copy-1"
    assert console.ask(GetJob(job_id="copy-1")).job.created_by == "mcp:planner"


def test_the_inbox_has_an_end(agent, store):
    spec = MappingCopySpec(source=SLEEP, destination="copier")
    for number in range(MOST_WAITING):
        agent.ask(AskApproval(request=StartJob(job_id=f"copy-{number}", spec=spec, op_id=f"{number}"), why="x"))
    told = agent.ask(AskApproval(request=StartJob(job_id="copy-x", spec=spec, op_id="x"), why="x"))
    assert isinstance(told, ErrorInfo)
    assert told.code == ErrorCode.PRECONDITION


def test_the_screen_is_told_how_many_wait(agent, open_console, job):
    console = open_console()
    console.greet()
    console.ask(Watch(jobs=True))
    asked = ask_to_stop(agent)
    console.hear(lambda frame: isinstance(frame, ApprovalsWaiting) and frame.count == 1)
    decide(console, asked, approve=False)
    console.say(Watch(jobs=True))
    console.hear(lambda frame: isinstance(frame, ApprovalsWaiting) and frame.count == 0)


def test_a_refusal_of_a_front_door_is_on_record(agent):
    refusal = RecordRefusal(tool="push", summary="to runs/a", code=ErrorCode.PRECONDITION, message="not allowed")
    assert agent.ask(refusal) == Done()
    (entry,) = agent.ask(ReadJournal()).entries
    assert (entry.actor, entry.action, entry.subject, entry.outcome) == ("mcp:planner", "tool", "push", "refused")
    assert (entry.code, entry.message) == (ErrorCode.PRECONDITION, "not allowed")


@pytest.fixture
def checkpoints(root):
    directory = root / "runs/old/checkpoints"
    directory.mkdir(parents=True)
    (directory / "weights").write_bytes(b"w" * 9)
    (root / "runs/old/mapping").mkdir()
    (root / "runs/old/mapping/manifest.json").write_text("{}")
    return directory


def ask_to_reclaim(console, path):
    token = console.ask(PlanReclaim(paths=[str(path)])).token
    return console.ask(AskApproval(request=MoveToTrash(paths=[str(path)], token=token, op_id="op-1"), why="x")).approval


def test_exactly_the_files_that_were_shown_go_into_the_trash(agent, console, checkpoints):
    asked = ask_to_reclaim(agent, checkpoints)
    assert asked.facts["goes"] == str(checkpoints)
    assert ask_to_reclaim(agent, checkpoints).approval_id == asked.approval_id
    (checkpoints / "weights").write_bytes(b"another")
    assert decide(console, asked).code == ErrorCode.CONFLICT
    assert checkpoints.exists()
    again = ask_to_reclaim(agent, checkpoints)
    assert decide(console, again).approval.done
    assert not checkpoints.exists()
    (entry,) = console.ask(ReadStorage()).trash
    assert entry.trashed_by == "mcp:planner"
    restore = RestoreFromTrash(name=entry.name, op_id="op-2")
    back = agent.ask(AskApproval(request=restore, why="x")).approval
    purge = StartJob(job_id="purge-1", spec=PurgeSpec(entries=[entry.path]), op_id="op-3")
    gone = agent.ask(AskApproval(request=purge, why="x")).approval
    assert list(gone.facts) == [entry.name]
    assert decide(console, back).approval.done
    assert checkpoints.exists()
    assert decide(console, gone).code == ErrorCode.CONFLICT, "what was to be purged is back where it was"


def test_a_run_is_asked_for_by_its_plan(agent):
    told = agent.ask(AskApproval(request=StartJob(job_id="run-1", spec=RunSpec(run=RUN), op_id="op-1"), why="x"))
    assert told.code == ErrorCode.USAGE
    other = RunSpec(run=RUN, plan="f" * 64)
    told = agent.ask(AskApproval(request=StartJob(job_id="run-1", spec=other, op_id="op-1"), why="x"))
    assert told.code == ErrorCode.NOT_FOUND, "no such plan was shown"
