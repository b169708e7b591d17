"""The link process spoken to for real: greeting, requests, streams, hanging up."""

import json
import os
import subprocess
import sys
import time

import msgspec

from remote.protocol.codec import MAX_LINE_BYTES
from remote.protocol.errors import ErrorCode, ErrorInfo
from remote.protocol.frames import (
    Answer,
    Call,
    Failure,
    Heartbeat,
    JobChanged,
    LogData,
    LogTruncated,
    ProgressMade,
    Telemetry,
)
from remote.protocol.jobs import Finished, Quarantined, Running
from remote.protocol.journal import ReadJournal
from remote.protocol.progress import Note, ProgressRecord
from remote.protocol.requests import (
    Done,
    GetJob,
    Hello,
    JobList,
    JobReply,
    ListJobs,
    LogPage,
    ProgressPage,
    ReadLog,
    ReadProgress,
    ReadTelemetry,
    StartJob,
    StopJob,
    Watch,
    Welcome,
)
from remote.protocol.specs import MappingCopySpec

SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(600)"
SPEAK = """
import time
for number in range(2000):
    print("line", number, "x" * 400, flush=number % 100 == 0)
"""
ENGINE = """
import http.server, json
class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'# TYPE sglang:num_running_reqs gauge\\nsglang:num_running_reqs{model_name="m"} 3.0\\n'
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
ready = {"type": "server_ready", "url": f"http://127.0.0.1:{server.server_port}", "engine": "sglang", "model": "m"}
ready |= {"engine_version": "0.5.23", "pid": 1, "startup_s": 1.0}
with open("progress.jsonl", "w") as progress:
    print(json.dumps({"type": "progress_record", "seq": 1, "at": 1.0, "event": ready}), file=progress)
server.serve_forever()
"""
RECORDS = [ProgressRecord(seq=n, at=float(n), event=Note(level="info", text=f"note {n}")) for n in range(1, 6)]


def write_progress(store, job_id, records):
    with (store.directory(job_id) / "progress.jsonl").open("ab") as file:
        file.write(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def test_the_greeting_says_who_answers(open_console, root):
    welcome = open_console().greet()
    assert isinstance(welcome, Welcome)
    assert (welcome.protocol, welcome.root, welcome.python) == (1, str(root), sys.executable)
    versions = {package.name: package.version for package in welcome.packages}
    assert versions["msgspec"] == msgspec.__version__
    assert versions["vllm"] is None
    assert 0 < welcome.boot_at < time.time()


def test_another_protocol_version_is_refused_and_the_link_ends(open_console):
    console = open_console()
    console.say(Hello(protocol=999, actor="ann"))
    (failure,) = console.rest()
    assert (failure.call_id, failure.error.code) == (1, ErrorCode.PROTOCOL)
    assert "999" in failure.error.message
    assert console.process.wait(30) == 0


def test_nothing_is_answered_before_the_greeting(open_console):
    console = open_console()
    console.say(ListJobs())
    (failure,) = console.rest()
    assert failure.error.code == ErrorCode.PROTOCOL


def test_an_unknown_request_is_refused_under_its_number_and_the_link_goes_on(console):
    console.say_raw(b'{"type":"call","call_id":77,"request":{"type":"dance"}}\n')
    failure = console.hear(lambda frame: isinstance(frame, Failure))
    assert (failure.call_id, failure.error.code) == (77, ErrorCode.PROTOCOL)
    assert isinstance(console.ask(ListJobs()), JobList)


def test_a_line_without_an_end_is_refused(console):
    console.say_raw(b"x" * (MAX_LINE_BYTES + (1 << 17)))
    (failure,) = console.rest()
    assert (failure.call_id, failure.error.code) == (0, ErrorCode.PROTOCOL)


def test_a_call_may_arrive_in_pieces_and_together_with_others(console):
    calls = b"".join(b'{"type":"call","call_id":%d,"request":{"type":"list_jobs"}}\n' % number for number in (5, 6, 7))
    for at in range(0, len(calls), 11):
        console.say_raw(calls[at : at + 11])
    answered = {console.hear(lambda frame: hasattr(frame, "reply")).call_id for _ in range(3)}
    assert answered == {5, 6, 7}


def test_a_job_is_started_under_the_name_of_the_consoles_actor(console, tmp_path):
    spec = MappingCopySpec(source=str(tmp_path / "none"), destination=str(tmp_path / "copy"))
    reply = console.ask(StartJob(job_id="copy", spec=spec, op_id="op-1"))
    assert isinstance(reply, JobReply)
    assert (reply.job.job_id, reply.job.agent, reply.job.created_by) == ("copy", "mapping_copy", "ann")
    assert reply.job.command == [sys.executable, "-m", "remote.agents.vocabulary.worker"]
    assert reply.job.spec == spec
    console.ask(Watch(jobs=True))
    if not isinstance(reply.job.state, Finished):
        console.hear(lambda frame: isinstance(frame, JobChanged) and isinstance(frame.job.state, Finished))
    assert console.ask(GetJob(job_id="copy")).job.state.outcome == "failed"


def test_errors_cross_the_wire_with_their_code(console):
    error = console.ask(GetJob(job_id="nobody"))
    assert isinstance(error, ErrorInfo)
    assert error.code == ErrorCode.NOT_FOUND
    assert "nobody" in error.message


def test_a_failing_answer_leaves_the_link_alive(console, store, start):
    start("broken", SLEEP)
    (store.directory("broken") / "out.log").unlink()
    (store.directory("broken") / "out.log").mkdir()
    error = console.ask(ReadLog(job_id="broken", offset=0, limit=10))
    assert (error.code, "IsADirectoryError" in error.message) == (ErrorCode.FAILED, True)
    (job,) = console.ask(ListJobs()).jobs
    assert isinstance(job.state, Quarantined)


def test_a_job_is_stopped_over_the_link(console, start):
    start("sleeper", SLEEP)
    console.ask(Watch(jobs=True))
    console.ask(StopJob(job_id="sleeper", op_id="op-2", reason="tea"))
    over = console.hear(lambda frame: isinstance(frame, JobChanged) and isinstance(frame.job.state, Finished))
    assert over.job.state.reason == "stopped by ann: tea"


def test_only_jobs_that_differ_are_told(console, start):
    start("first", SLEEP)
    told = console.ask(ListJobs()).jobs
    while told[0].last_line != "asleep":
        told = console.ask(ListJobs()).jobs
    console.ask(Watch(jobs=True))
    start("second", SLEEP)
    changed = console.hear(lambda frame: isinstance(frame, JobChanged))
    assert changed.job.job_id == "second"


def test_every_console_sees_the_same_jobs(open_console, start):
    start("shared", SLEEP)
    one, two = open_console(), open_console()
    for console in (one, two):
        console.greet()
        console.ask(Watch(jobs=True))
        console.hear(lambda frame: isinstance(frame, JobChanged) and isinstance(frame.job.state, Running))
    one.ask(StopJob(job_id="shared", op_id="op-3", reason="done"))
    two.hear(lambda frame: isinstance(frame, JobChanged) and isinstance(frame.job.state, Finished))


def test_a_watched_log_arrives_whole_and_in_order(console, start, store):
    console.ask(Watch(logs={"speaker": 0}))
    start("speaker", SPEAK)
    taken = b""
    while not taken.endswith(b"line 1999 " + b"x" * 400 + b"\n"):
        frame = console.hear(lambda frame: isinstance(frame, LogData))
        assert (frame.job_id, frame.offset) == ("speaker", len(taken))
        taken += frame.data
    assert taken == (store.directory("speaker") / "out.log").read_bytes()


def test_a_log_goes_on_at_the_cursor_of_another_link(open_console, start):
    start("speaker", SPEAK)
    first = open_console()
    first.greet()
    first.ask(Watch(logs={"speaker": 0}))
    head = first.hear(lambda frame: isinstance(frame, LogData))
    first.process.kill()
    second = open_console()
    second.greet()
    second.ask(Watch(logs={"speaker": head.offset + 7}))
    frame = second.hear(lambda frame: isinstance(frame, LogData))
    assert frame.offset == head.offset + 7
    assert head.data[7:].startswith(frame.data[: len(head.data) - 7])


def test_a_log_that_shrank_is_told(console, start, store):
    start("speaker", "print('hello', flush=True)")
    console.ask(Watch(logs={"speaker": 4000}))
    told = console.hear(lambda frame: isinstance(frame, LogTruncated | LogData))
    assert told == LogTruncated(job_id="speaker", start=0)
    assert console.hear(lambda frame: isinstance(frame, LogData)).data == b"hello\n"


def test_log_pages(console, start):
    start("speaker", "print('0123456789', flush=True)")
    console.ask(Watch(logs={"speaker": 0}))
    console.hear(lambda frame: isinstance(frame, LogData))
    page = console.ask(ReadLog(job_id="speaker", offset=3, limit=4))
    assert page == LogPage(job_id="speaker", offset=3, data=b"3456", start=0, size=11)
    assert console.ask(ReadLog(job_id="speaker", offset=None, limit=3)).data == b"89\n"
    assert console.ask(ReadLog(job_id="speaker", offset=99, limit=3)).offset == 11


def test_progress_is_streamed_and_read_from_a_number_on(console, start, store):
    start("worker", SLEEP)
    write_progress(store, "worker", RECORDS[:3])
    console.ask(Watch(progress={"worker": 1}))
    assert [console.hear(lambda frame: isinstance(frame, ProgressMade)).record.seq for _ in range(2)] == [2, 3]
    write_progress(store, "worker", RECORDS[3:])
    assert [console.hear(lambda frame: isinstance(frame, ProgressMade)).record for _ in range(2)] == RECORDS[3:]
    page = console.ask(ReadProgress(job_id="worker", after_seq=2, limit=2))
    assert page == ProgressPage(job_id="worker", records=RECORDS[2:4])
    assert console.ask(GetJob(job_id="worker")).job.last_progress == RECORDS[-1]


def test_a_new_watch_replaces_the_old_one(console, start, store):
    start("old", SLEEP)
    start("new", SLEEP)
    console.ask(Watch(logs={"old": 0}))
    console.hear(lambda frame: isinstance(frame, LogData) and frame.job_id == "old")
    assert console.ask(Watch(logs={"new": 0})) == Done()
    with (store.directory("old") / "out.log").open("ab") as log:
        log.write(b"nobody looks\n")
    frame = console.hear(lambda frame: isinstance(frame, LogData))
    assert (frame.job_id, frame.data) == ("new", b"asleep\n")
    console.hear(lambda frame: isinstance(frame, Heartbeat))
    console.process.stdin.close()
    assert console.rest() == []


def test_a_slow_console_loses_no_log_byte(console, start, store):
    start("speaker", SPEAK)
    while not store.list()[0].last_line.startswith("line 1999"):
        pass
    console.lines_taken.clear()
    console.say(Watch(telemetry=True, jobs=True, logs={"speaker": 0}))
    console.wait_until_the_pipe_is_full()
    console.lines_taken.set()
    taken = b""
    while len(taken) < (store.directory("speaker") / "out.log").stat().st_size:
        taken += console.hear(lambda frame: isinstance(frame, LogData)).data
    assert taken == (store.directory("speaker") / "out.log").read_bytes()


def test_telemetry_is_streamed_and_its_rates_are_known_from_the_first_reading_on(console):
    console.ask(Watch(telemetry=True))
    first, second = (console.hear(lambda frame: isinstance(frame, Telemetry)).sample for _ in range(2))
    assert first.sampled_at < second.sampled_at
    assert first.host.network_rx_bytes_per_s is not None
    assert first.host.memory_total_bytes > 0


def test_a_running_engine_is_read_where_its_job_says_that_it_answers(console, start):
    start("server", ENGINE, agent="server")
    console.ask(Watch(progress={"server": 0}))
    console.hear(lambda frame: isinstance(frame, ProgressMade))
    (engine,) = console.ask(ReadTelemetry()).engines
    assert (engine.job_id, engine.engine, engine.running_requests) == ("server", "sglang", 3)
    console.ask(StopJob(job_id="server", op_id="op-4", reason="done"))
    while not isinstance(console.ask(GetJob(job_id="server")).job.state, Finished):
        pass
    assert console.ask(ReadTelemetry()).engines == []


def test_hanging_up_ends_the_link_and_nothing_else(console, start, store):
    start("survivor", SLEEP)
    console.ask(Watch(jobs=True, logs={"survivor": 0}))
    console.process.stdin.close()
    assert console.process.wait(30) == 0
    assert console.process.stderr.read() == b""
    assert isinstance(store.get("survivor").state, Running)


def test_a_console_that_stops_listening_ends_the_link(root, store):
    take, give = os.pipe()
    command = [sys.executable, "-m", "remote", "link", "--root", root]
    link = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=give, stderr=subprocess.PIPE)
    os.close(give)
    link.stdin.write(msgspec.json.encode(Call(call_id=1, request=Hello(protocol=1, actor="ann"))) + b"\n")
    link.stdin.flush()
    os.read(take, 1 << 16)
    os.close(take)
    assert link.wait(30) == 0
    assert link.stderr.read() == b""
    link.stdin.close()
    link.stderr.close()


def test_the_list_is_cut_where_a_line_ends(console, store):
    spec = MappingCopySpec(source="x" * 100_000, destination="/nowhere")
    for number in range(12):
        store._starter.reserve(store.directory(f"long-{number:02}"), spec)
    page = console.ask(ListJobs())
    assert len(page.jobs) + page.omitted == 12
    assert page.omitted > 0
    rest = console.ask(ListJobs(skip=len(page.jobs)))
    assert {job.job_id for job in page.jobs + rest.jobs} == {f"long-{number:02}" for number in range(12)}


def test_a_link_over_a_plain_file_says_what_is_wrong(root, store):
    command = [sys.executable, "-m", "remote", "link", "--root", root]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert b"pipes or sockets" in ended.stderr


def test_the_other_verbs_print_json(root, start):
    start("listed", SLEEP)
    version = subprocess.run([sys.executable, "-m", "remote", "version"], capture_output=True, check=True)
    assert json.loads(version.stdout)["protocol"] == 1
    jobs = subprocess.run([sys.executable, "-m", "remote", "jobs", "--root", root], capture_output=True, check=True)
    (job,) = json.loads(jobs.stdout)
    assert (job["job_id"], job["state"]["type"]) == ("listed", "running")


def test_of_two_watches_the_later_one_holds(console, start, store):
    for job_id in ("one", "two"):
        start(job_id, SLEEP)
        while store.get(job_id).last_line != "asleep":
            time.sleep(0.02)
    for _ in range(20):
        console.say(Watch(logs={"one": 0}))
        last = console.say(Watch(logs={"two": 6}))
    console.hear(lambda frame: isinstance(frame, Answer) and frame.call_id == last)
    for job_id in ("one", "two"):
        with (store.directory(job_id) / "out.log").open("ab") as log:
            log.write(b"more\n")
    frame = console.hear(lambda frame: isinstance(frame, LogData) and frame.data.endswith(b"more\n"))
    assert frame.job_id == "two"


def test_a_watch_of_an_impossible_name_is_refused_and_changes_nothing(console, start):
    start("good", SLEEP)
    console.ask(Watch(jobs=True))
    error = console.ask(Watch(logs={"../escape": 0}))
    assert (error.code, "../escape" in error.message) == (ErrorCode.USAGE, True)
    start("better", SLEEP)
    console.hear(lambda frame: isinstance(frame, JobChanged) and frame.job.job_id == "better")


def test_what_a_console_changes_is_in_the_journal_with_what_was_refused(console):
    spec = MappingCopySpec(source=SLEEP, destination="copier")
    console.ask(StartJob(job_id="kept", spec=spec, op_id="op-1"))
    console.ask(StopJob(job_id="absent", op_id="op-2", reason="enough"))
    console.ask(GetJob(job_id="kept"))
    page = console.ask(ReadJournal())
    refused, started = page.entries
    assert (started.actor, started.action, started.subject, started.outcome) == ("ann", "start", "kept", "done")
    assert started.summary.startswith("mapping copy: source import time")
    assert (refused.action, refused.subject, refused.summary, refused.outcome) == (
        "stop",
        "absent",
        "enough",
        "refused",
    )
    assert refused.code == ErrorCode.NOT_FOUND
    console.ask(StopJob(job_id="kept", op_id="op-3", reason="enough"))
