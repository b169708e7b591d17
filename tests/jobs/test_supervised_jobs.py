"""Jobs as real processes: how they end, how they are stopped, what survives what."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from remote.errors import Conflict, NotFound, Precondition, UsageError, WorkFailed
from remote.jobs import process
from remote.jobs.spawn import spawn_supervisor
from remote.jobs.store import JobStore
from remote.protocol.jobs import Finished, Lost, Orphaned, Queued, Running, Stalled, Stopping, is_over

SUCCEED = """
import json, os
print("working", flush=True)
json.dump({"type": "job_result", "outputs": [], "summary": {"n": 3}}, open("result.json", "w"))
"""
SLEEP = "print('asleep', flush=True)\nimport time\ntime.sleep(600)"
WAIT_FOR_GO = """
import pathlib, time
print("waiting", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""
HOLD_BY_TRACING = """
import ctypes, os, sys
pid, attach = int(sys.argv[1]), 16
if ctypes.CDLL(None).ptrace(attach, pid, None, None) != 0:
    print("refused", flush=True)
    sys.exit()
os.waitpid(pid, 0)
print("held", flush=True)
os.waitpid(pid, 0)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('deaf', flush=True)
time.sleep(600)
"""
WITH_STRAY = """
import subprocess, sys, time
stray = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
print(stray.pid, flush=True)
"""
PROMISE = """
import hashlib, json, os, pathlib
out = pathlib.Path("artifact"); out.mkdir()
(out / "manifest.json").write_text("{}")
digest = hashlib.sha256(b"%s").hexdigest()
output = {"type": "artifact_ref", "kind": "mapping", "path": str(out.resolve()), "manifest_sha256": digest}
json.dump({"type": "job_result", "outputs": [output], "summary": {}}, open("result.json", "w"))
"""


def finished(job) -> bool:
    return isinstance(job.state, Finished)


def log_of(workshop, job_id: str) -> str:
    return workshop.store.read_log(job_id, 0, 1 << 16).data.decode()


def supervisor_pid(workshop, job_id: str) -> int:
    return json.loads((workshop.store.directory(job_id) / "started.json").read_bytes())["supervisor_pid"]


def make_heartbeat_old(workshop, job_id: str) -> None:
    long_ago = time.time() - 60
    os.utime(workshop.store.directory(job_id) / "heartbeat", (long_ago, long_ago))


def is_gone(pid: int) -> bool:
    found = process.read_process(pid)
    return found is None or found.state == "Z"


def test_a_job_that_keeps_its_promises_succeeds(workshop):
    started = workshop.start("good", SUCCEED)
    assert isinstance(started.state, Running | Finished)
    job = workshop.until("good", finished)
    assert job.state.outcome == "succeeded"
    assert (job.state.exit_code, job.state.signal) == (0, None)
    assert (job.agent, job.created_by, job.last_line) == ("mapping_copy", "ann", "working")
    assert job.result.summary == {"n": 3}
    assert job.revision > started.revision


def test_an_exit_code_is_recorded(workshop):
    workshop.start("bad", "import sys; print('oh'); sys.exit(7)")
    state = workshop.until("bad", finished).state
    assert (state.outcome, state.exit_code) == ("failed", 7)
    assert "exit code 7" in state.reason


def test_the_works_own_words_become_the_reason(workshop):
    workshop.start(
        "told",
        "import json, sys\n"
        "json.dump({'type': 'error_info', 'code': 'precondition', 'message': 'the disk is full'}, open('failure.json', 'w'))\n"
        "sys.exit(1)",
    )
    assert workshop.until("told", finished).state.reason == "the disk is full"


def test_exit_0_without_a_result_is_a_failure(workshop):
    workshop.start("empty", "pass")
    state = workshop.until("empty", finished).state
    assert (state.outcome, state.exit_code) == ("failed", 0)
    assert "no result.json" in state.reason


@pytest.mark.parametrize(("content", "outcome"), [("{}", "succeeded"), ("[]", "failed")])
def test_a_promised_manifest_must_have_the_recorded_hash(workshop, content, outcome):
    workshop.start("promise", PROMISE % content)
    state = workshop.until("promise", finished).state
    assert state.outcome == outcome
    if outcome == "failed":
        assert "manifest.json is not the manifest" in state.reason


def test_a_command_that_cannot_be_executed_fails_with_its_name(workshop, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    workshop.start("missing", "pass")
    state = workshop.until("missing", finished).state
    assert state.outcome == "failed"
    assert "could not execute /nowhere/python: No such file or directory" in state.reason


def test_the_work_has_its_own_session_and_environment(workshop):
    program = """
        import json, os
        names = ["ROOST_JOB_DIR", "ROOST_ROOT", "SPT_NOENV", "PYTHONPATH"]
        facts = {"session": os.getsid(0) == os.getpid(), "supervisor_mark": "ROOST_SUPERVISOR" in os.environ}
        print(json.dumps({**facts, **{name: os.environ[name] for name in names}}))
    """
    workshop.start("facts", textwrap.dedent(program))
    workshop.until("facts", finished)
    facts = json.loads(log_of(workshop, "facts"))
    assert facts.pop("session") is True
    assert facts.pop("supervisor_mark") is False
    assert facts == {
        "ROOST_JOB_DIR": str(workshop.store.directory("facts")),
        "ROOST_ROOT": str(workshop.store.root),
        "SPT_NOENV": "1",
        "PYTHONPATH": str(workshop.store.release),
    }


def test_a_stop_is_recorded_with_who_and_why(workshop):
    workshop.start("sleeper", SLEEP)
    job = workshop.stop("sleeper")
    assert isinstance(job.state, Stopping | Finished)
    state = workshop.until("sleeper", finished).state
    assert (state.outcome, state.signal) == ("stopped", signal.SIGTERM)
    assert state.reason == "stopped by ben: enough"


def test_work_that_ignores_the_polite_signal_is_killed(workshop):
    workshop.start("deaf", DEAF, grace_s=0.2)
    workshop.until("deaf", lambda job: job.last_line == "deaf")
    workshop.stop("deaf")
    state = workshop.until("deaf", finished).state
    assert (state.outcome, state.signal) == ("stopped", signal.SIGKILL)


def test_a_grandchild_in_another_session_is_swept(workshop):
    workshop.start("parent", WITH_STRAY)
    workshop.until("parent", finished)
    assert is_gone(int(log_of(workshop, "parent")))


def test_a_stray_without_its_environment_is_swept_as_a_descendant(workshop):
    program = """
        import subprocess, sys
        stray = subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True, env={}
        )
        print(stray.pid, flush=True)
    """
    workshop.start("wiped", textwrap.dedent(program))
    workshop.until("wiped", finished)
    assert is_gone(int(log_of(workshop, "wiped")))


def test_the_killed_work_is_a_failure_by_its_signal(workshop):
    job = workshop.start("victim", SLEEP)
    os.kill(job.state.pid, signal.SIGKILL)
    state = workshop.until("victim", finished).state
    assert (state.outcome, state.exit_code, state.signal) == ("failed", None, 9)
    assert "SIGKILL" in state.reason


def test_a_job_without_its_supervisor_is_orphaned_and_can_still_be_stopped(workshop):
    pid = workshop.start("orphan", SLEEP + "  # with a stray\n", grace_s=2.0).state.pid
    os.kill(supervisor_pid(workshop, "orphan"), signal.SIGKILL)
    workshop.until("orphan", lambda job: job.state.__class__ is Orphaned)
    assert not is_gone(pid)
    workshop.stop("orphan")
    state = workshop.until("orphan", finished).state
    assert (state.outcome, state.exit_code) == ("stopped", None)
    assert "stopped by ben: enough" in state.reason
    assert is_gone(pid)


def test_stopping_an_orphan_ends_its_strays_and_the_deaf(workshop):
    workshop.start("orphan", WITH_STRAY + DEAF, grace_s=0.2)
    workshop.until("orphan", lambda job: job.last_line == "deaf")
    stray = int(log_of(workshop, "orphan").split()[0])
    os.kill(supervisor_pid(workshop, "orphan"), signal.SIGKILL)
    workshop.until("orphan", lambda job: job.state.__class__ is Orphaned)
    workshop.stop("orphan")
    workshop.until("orphan", finished)
    assert is_gone(stray)


def test_an_orphan_is_adopted_and_its_verified_result_counts(workshop):
    workshop.start("orphan", WAIT_FOR_GO + SUCCEED)
    before = workshop.until("orphan", lambda job: job.last_line == "waiting")
    os.kill(supervisor_pid(workshop, "orphan"), signal.SIGKILL)
    workshop.until("orphan", lambda job: job.state.__class__ is Orphaned)
    adopted = workshop.store.recover("orphan")
    assert isinstance(adopted.state, Running)
    assert adopted.state.pid == before.state.pid
    (workshop.store.directory("orphan") / "go").touch()
    state = workshop.until("orphan", finished).state
    assert (state.outcome, state.exit_code) == ("succeeded", None)
    assert "exit code is unknown" in state.reason


def test_an_adopted_job_without_a_result_has_failed(workshop):
    workshop.start("orphan", WAIT_FOR_GO)
    workshop.until("orphan", lambda job: job.last_line == "waiting")
    os.kill(supervisor_pid(workshop, "orphan"), signal.SIGKILL)
    workshop.until("orphan", lambda job: job.state.__class__ is Orphaned)
    workshop.store.recover("orphan")
    (workshop.store.directory("orphan") / "go").touch()
    state = workshop.until("orphan", finished).state
    assert (state.outcome, state.exit_code) == ("failed", None)
    assert "left no result" in state.reason


def test_the_strays_of_a_lost_job_are_swept_once(workshop):
    workshop.start("lost", WITH_STRAY + "time.sleep(600)")
    job = workshop.until("lost", lambda job: job.last_line.isdigit())
    stray = int(job.last_line)
    os.kill(supervisor_pid(workshop, "lost"), signal.SIGKILL)
    os.kill(job.state.pid, signal.SIGKILL)
    workshop.until("lost", lambda job: job.state.__class__ is Lost)
    assert not is_gone(stray)
    workshop.store.recover_all()
    workshop.until_file(workshop.store.directory("lost") / "lost.json")
    assert is_gone(stray)
    workshop.until("lost", lambda job: isinstance(job.state, Lost))


def test_a_suspended_supervisor_is_woken_by_a_stop(workshop):
    workshop.start("frozen", SLEEP)
    workshop.until("frozen", lambda job: job.last_line == "asleep")
    os.kill(supervisor_pid(workshop, "frozen"), signal.SIGSTOP)
    make_heartbeat_old(workshop, "frozen")
    assert isinstance(workshop.store.get("frozen").state, Stalled)
    workshop.stop("frozen")
    state = workshop.until("frozen", finished).state
    assert (state.outcome, state.signal) == ("stopped", signal.SIGTERM)


def test_a_supervisor_that_will_not_wake_is_replaced(workshop):
    workshop.start("stuck", SLEEP)
    pid = workshop.until("stuck", lambda job: job.last_line == "asleep").state.pid
    tracer = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD_BY_TRACING, str(supervisor_pid(workshop, "stuck"))], stdout=subprocess.PIPE
    )
    if tracer.stdout.readline() != b"held\n":
        tracer.communicate()
        pytest.skip("no process may be traced here")
    make_heartbeat_old(workshop, "stuck")
    workshop.stop("stuck")
    tracer.communicate()
    state = workshop.until("stuck", finished).state
    assert (state.outcome, state.exit_code) == ("stopped", None)
    assert is_gone(pid)


def test_a_cleaned_tmp_makes_no_second_supervisor(workshop):
    workshop.start("steady", SLEEP)
    workshop.until("steady", lambda job: job.last_line == "asleep")
    supervisor = supervisor_pid(workshop, "steady")
    shutil.rmtree(workshop.store._locks)
    workshop.store._locks.mkdir(mode=0o700)
    heartbeat = workshop.store.directory("steady") / "heartbeat"
    for _ in range(2):
        beat = heartbeat.stat().st_mtime
        workshop.wait_for(lambda beat=beat: heartbeat.stat().st_mtime > beat)
    workshop.store.recover_all()
    assert isinstance(workshop.store.get("steady").state, Running)
    state = json.loads((workshop.store.directory("steady") / "state.json").read_bytes())
    assert (state["supervisor_pid"], state["rev"]) == (supervisor, 1)
    workshop.stop("steady")
    assert workshop.until("steady", finished).state.signal == signal.SIGTERM


def test_a_root_of_a_newer_roost_is_only_read(workshop):
    workshop.start("good", SUCCEED)
    workshop.until("good", finished)
    (workshop.root / "schema.json").write_text('{"v": 2}')
    newer = JobStore(workshop.root, workshop.store.release, sys.executable, plan=workshop.store._starter._plan)
    assert newer.get("good").state.outcome == "succeeded"
    with pytest.raises(Precondition, match="set up by a newer Roost"):
        newer.start("more", workshop.spec(SUCCEED), actor="ann", op_id="op-more")


def test_a_job_that_is_over_leaves_no_lock_behind(workshop):
    workshop.start("good", SUCCEED)
    workshop.until("good", finished)
    workshop.wait_for(lambda: not list(workshop.store._locks.iterdir()))


def test_a_supervisor_whose_job_was_deleted_ends(workshop):
    pid = workshop.start("deleted", SLEEP).state.pid
    supervisor = supervisor_pid(workshop, "deleted")
    directory = workshop.store.directory("deleted")
    # The supervisor may be writing there: then it is not empty at the first attempt.
    workshop.wait_for(lambda: shutil.rmtree(directory, ignore_errors=True) or not directory.exists())
    os.kill(pid, signal.SIGKILL)
    workshop.wait_for(lambda: is_gone(supervisor))


def test_a_supervisor_that_is_told_to_end_stops_its_job(workshop):
    workshop.start("told", SLEEP)
    os.kill(supervisor_pid(workshop, "told"), signal.SIGTERM)
    state = workshop.until("told", finished).state
    assert (state.outcome, state.reason) == ("stopped", "stopped by host: the supervisor received SIGTERM")


def test_the_job_outlives_the_process_that_started_it(workshop, tmp_path):
    program = tmp_path / "console.py"
    program.write_text(
        textwrap.dedent(f"""
        import importlib.util, sys, time
        sys.path.insert(0, {str(workshop.store.release)!r})
        found = importlib.util.spec_from_file_location("shop", {str(Path(__file__).parent / "workshop.py")!r})
        shop = importlib.util.module_from_spec(found)
        found.loader.exec_module(shop)
        from pathlib import Path
        shop.Workshop(Path({str(workshop.root)!r})).start("survivor", {SLEEP!r})
        print("started", flush=True)
        time.sleep(600)
        """)
    )
    console = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, start_new_session=True)
    assert console.stdout.readline() == b"started\n"
    os.killpg(console.pid, signal.SIGKILL)
    assert console.stdout.read() == b"", "the job must not hold the console's output open"
    console.wait()
    console.stdout.close()
    job = workshop.until("survivor", lambda job: job.last_line == "asleep")
    assert isinstance(job.state, Running)


def test_eight_processes_start_the_same_job_once(workshop):
    program = "open('effects', 'a').write('x')\n" + SLEEP
    starters = []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                store = JobStore(
                    workshop.root, workshop.store.release, sys.executable, plan=workshop.store._starter._plan
                )
                job = store.start("race", workshop.spec(program), actor=f"a{number}", op_id=f"op-{number}")
                code = 0 if isinstance(job.state, Running) else 2
            finally:
                os._exit(code)
        starters.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in starters] == [0] * 8
    workshop.until("race", lambda job: job.last_line == "asleep")
    assert (workshop.store.directory("race") / "effects").read_text() == "x"


def test_the_same_operation_twice_takes_effect_once(workshop):
    first = workshop.start("once", SLEEP)
    again = workshop.start("once", SLEEP)
    assert again.state.pid == first.state.pid
    workshop.stop("once")
    over = workshop.until("once", finished)
    assert workshop.stop("once") == over
    with pytest.raises(Conflict, match="already used by ann to start once"):
        workshop.store.start("other", workshop.spec(SLEEP), actor="ben", op_id="start-once")


def test_an_operation_that_comes_back_with_another_spec_is_refused_and_says_what_differs(workshop):
    workshop.start("once", SLEEP)
    with pytest.raises(Conflict, match=r"destination is \"5.0\" there, asked for is \"7.0\""):
        workshop.start("once", SLEEP, grace_s=7.0)


def test_another_spec_under_the_same_name_is_refused(workshop):
    workshop.start("taken", SLEEP)
    with pytest.raises(Conflict, match="started by ann"):
        workshop.store.start("taken", workshop.spec("pass"), actor="ben", op_id="op-2")


def test_a_stale_revision_is_refused_and_names_the_other(workshop):
    seen = workshop.start("shared", SLEEP)
    seen = workshop.until("shared", lambda job: job.last_line == "asleep")
    workshop.stop("shared")
    with pytest.raises(Conflict, match=r"ben asked it to stop \(enough\)"):
        workshop.store.stop("shared", actor="cem", op_id="op-9", reason="me too", expected_revision=seen.revision)


def test_a_job_that_could_not_start_is_queued_and_may_start_again(workshop, tmp_path):
    store = JobStore(workshop.root, workshop.store.release, "/nowhere/python", plan=workshop.store._starter._plan)
    with pytest.raises(Precondition, match="/nowhere/python"):
        store.start("later", workshop.spec(SUCCEED), actor="ann", op_id="op-1")
    assert isinstance(workshop.store.get("later").state, Queued)
    workshop.start("later", SUCCEED)
    assert workshop.until("later", finished).state.outcome == "succeeded"


def test_a_supervisor_that_fails_is_told_in_its_own_words(workshop):
    directory = workshop.store.directory("broken")
    directory.mkdir()
    (directory / "launch.json").write_text("no json")
    with pytest.raises(WorkFailed, match=r"JSONDecodeError|cannot be read"):
        spawn_supervisor(sys.executable, directory, "cookie")


def test_a_queued_job_can_be_stopped(workshop):
    store = JobStore(workshop.root, workshop.store.release, "/nowhere/python", plan=workshop.store._starter._plan)
    with pytest.raises(Precondition):
        store.start("never", workshop.spec(SUCCEED), actor="ann", op_id="op-1")
    state = workshop.stop("never").state
    assert isinstance(state, Finished)
    assert state.outcome == "stopped"


def test_a_run_that_ends_takes_its_jobs_with_it_and_nobody_elses(workshop):
    workshop.start("run", SLEEP)
    workshop.start("child", SLEEP, run_id="run")
    workshop.start("neighbour", SLEEP)
    workshop.stop("run")
    child = workshop.until("child", finished)
    assert child.state.reason == "stopped by host: its run has ended"
    workshop.until("run", finished)
    assert isinstance(workshop.store.get("neighbour").state, Running)
    with pytest.raises(Precondition, match="starts no more jobs"):
        workshop.start("late", SLEEP, run_id="run")


def test_a_job_started_from_within_a_job_is_no_stray_of_it(workshop):
    inner = f"""
import importlib.util, sys
sys.path.insert(0, {str(workshop.store.release)!r})
sys.path[:0] = {[path for path in sys.path if path]!r}
found = importlib.util.spec_from_file_location("shop", {str(Path(__file__).parent / "workshop.py")!r})
shop = importlib.util.module_from_spec(found)
found.loader.exec_module(shop)
from pathlib import Path
shop.Workshop(Path({str(workshop.root)!r})).start("inner", {SLEEP!r})
"""
    workshop.start("outer", inner)
    assert workshop.until("outer", finished).state.exit_code == 0, log_of(workshop, "outer")
    job = workshop.until("inner", lambda job: job.last_line == "asleep")
    assert isinstance(job.state, Running)
    assert not is_over(job.state)


def test_unknown_and_impossible_names(workshop):
    with pytest.raises(NotFound):
        workshop.store.get("nobody")
    with pytest.raises(UsageError):
        workshop.store.get("../escape")


def test_the_supervisor_needs_nothing_but_the_standard_library(workshop):
    spec = workshop.spec(SUCCEED)
    directory = workshop.store.directory("bare")
    workshop.store._starter.reserve(directory, spec)
    workshop.store._starter.write_launch(directory, workshop.store._starter._plan(spec), actor="ann", run_id=None)
    script = workshop.store.release / "remote" / "jobs" / "supervisor.py"
    answer = subprocess.run([sys.executable, "-I", "-S", script, directory], stdout=subprocess.PIPE, check=True)
    assert answer.stdout == b"started\n"
    assert workshop.until("bare", finished).state.outcome == "succeeded"


def test_suspended_work_hears_of_its_stop_at_once(workshop):
    """And ends in its own way, long before the grace is over."""
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); print(1, flush=True); time.sleep(600)"
    )
    pid = workshop.start("frozen-work", program, grace_s=600.0).state.pid
    workshop.wait_for(lambda: workshop.store.get("frozen-work").log_size > 0)
    os.kill(pid, signal.SIGSTOP)
    workshop.stop("frozen-work")
    state = workshop.until("frozen-work", lambda job: isinstance(job.state, Finished)).state
    assert (state.outcome, state.exit_code, state.signal) == ("stopped", 143, None)
