"""What is on disk: write-once records, quarantine, log offsets, progress, the cheap list."""

import errno
import os
import signal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote.artifacts import atomic
from remote.jobs import launch, locks, logs, process, view
from remote.jobs.log_bound import LogBound, read_start
from remote.jobs.logs import read_log
from remote.jobs.outcome import judge
from remote.protocol.codec import decode_spec
from remote.protocol.jobs import Finished, Quarantined
from remote.protocol.progress import Note, ProgressRecord
from remote.protocol.specs import MappingCopySpec, Spec

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "protocol" / "v1"


def note(seq, text="x"):
    return ProgressRecord(seq=seq, at=float(seq), event=Note(level="info", text=text))


def write_records(path, records):
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def test_the_first_writer_of_a_record_wins(tmp_path):
    path = tmp_path / "exit.json"
    assert atomic.write_once(path, b"first")
    assert not atomic.write_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["exit.json"]


def test_a_failed_replacement_keeps_the_old_record(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    atomic.write_atomic(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_lock_is_seen_while_held_and_free_when_its_holder_dies(tmp_path):
    path = tmp_path / "job.lock"
    assert not locks.is_held(path)
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        locks.take(path, 1.0)
        os.write(ready[1], b"!")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    assert locks.is_held(path)
    with pytest.raises(locks.LockTimeout):
        locks.take(path, 0.0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not locks.is_held(path)
    for descriptor in (*ready, *go):
        os.close(descriptor)


def test_a_lock_directory_that_others_may_enter_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_BASES", (tmp_path / "shared", tmp_path / "private"))
    (tmp_path / "shared" / f"roost-{os.getuid()}").mkdir(parents=True, mode=0o777)
    (tmp_path / "shared" / f"roost-{os.getuid()}").chmod(0o777)
    (tmp_path / "private").mkdir()
    assert locks.lock_directory(tmp_path).is_relative_to(tmp_path / "private")
    (tmp_path / "private" / f"roost-{os.getuid()}").chmod(0o755)
    with pytest.raises(locks.NoLockDirectory, match="not a private directory"):
        locks.lock_directory(tmp_path)


def test_a_process_is_its_pid_and_its_start():
    own = process.start_time(os.getpid())
    assert process.is_alive(os.getpid(), own)
    assert not process.is_alive(os.getpid(), own - 1)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_alive(pid, process.start_time(pid)), "a zombie is not alive"
    os.waitpid(pid, 0)
    assert process.read_process(pid) is None


def test_every_spec_has_a_worker():
    for spec_type in Spec.__args__:
        golden = (GOLDEN / f"{spec_type.__struct_config__.tag}.json").read_bytes()
        planned = launch.plan(decode_spec(golden), "/opt/python")
        assert planned.argv[:2] == ["/opt/python", "-m"]
        assert planned.stop_grace_s >= 30
    assert launch.plan(MappingCopySpec(source="a", destination="b"), "p").agent == "mapping_copy"


@pytest.mark.parametrize("name", ["launch.json", "started.json", "state.json", "exit.json"])
@pytest.mark.parametrize("content", ['{"v": 99}', "{", "\x00\x00"])
def test_records_of_a_newer_or_broken_release_are_quarantined(workshop, name, content):
    directory = workshop.store.directory("old")
    workshop.store._starter.reserve(directory, workshop.spec("pass"))
    workshop.store._starter.write_launch(
        directory, workshop.store._starter._plan(workshop.spec("pass")), actor="ann", run_id=None
    )
    (directory / name).write_text(content)
    (job,) = workshop.store.list()
    assert isinstance(job.state, Quarantined)
    assert name in job.state.reason


def test_a_spec_of_a_newer_release_is_quarantined(workshop):
    directory = workshop.store.directory("new")
    directory.mkdir()
    (directory / "spec.json").write_text('{"type": "teleport_spec"}')
    job = workshop.store.get("new")
    assert isinstance(job.state, Quarantined)
    assert (job.spec, "teleport_spec" in job.state.reason) == (None, True)


def test_a_directory_without_a_spec_is_no_job(workshop):
    workshop.store.directory("half").mkdir()
    assert workshop.store.list() == []


def test_jobs_are_listed_newest_first_and_a_finished_one_is_read_once(workshop, monkeypatch):
    for name in ("one", "two", "three"):
        workshop.start(name, "pass")
        workshop.until(name, lambda job: isinstance(job.state, Finished))
    assert [job.job_id for job in workshop.store.list()] == ["three", "two", "one"]
    read = []
    monkeypatch.setattr(view, "read_job", lambda directory, redactor: read.append(directory.name))
    assert [job.job_id for job in workshop.store.list()] == ["three", "two", "one"]
    assert read == []


@given(st.binary(max_size=3000), st.integers(-10, 4000) | st.none(), st.integers(0, 4000))
def test_a_log_page_is_a_slice_at_an_absolute_offset(tmp_path_factory, content, offset, limit):
    path = tmp_path_factory.mktemp("log") / "out.log"
    path.write_bytes(content)
    page = logs.read_log(path, offset, limit)
    assert page.size == len(content)
    assert page.data == content[page.offset : page.offset + len(page.data)]
    if offset is None:
        assert page.data == content[max(0, len(content) - limit) :]
    else:
        assert page.offset == min(max(0, offset), len(content))
        assert len(page.data) == min(limit, len(content) - page.offset)


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=20), st.integers(1, 100))
def test_pages_joined_are_the_log(tmp_path_factory, pieces, limit):
    path = tmp_path_factory.mktemp("log") / "out.log"
    whole = b"".join(pieces)
    path.write_bytes(whole)
    taken = b""
    while page := logs.read_log(path, len(taken), limit).data:
        taken += page
    assert taken == whole


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", ""),
        (b"one\ntwo\n", "two"),
        (b"one\n\n  \n", "one"),
        (b"loading 10%\rloading 90%\r", "loading 90%"),
        (b"torn", "torn"),
        (b"caf\xe9\n", "caf\ufffd"),
        (b"x" * 9000, "x" * 400),
    ],
)
def test_the_last_line(tmp_path, content, line):
    path = tmp_path / "out.log"
    path.write_bytes(content)
    assert logs.read_last_line(str(path)) == (len(content), line)


def test_progress_is_read_in_order_without_the_torn_end(tmp_path):
    path = tmp_path / "progress.jsonl"
    reader = logs.ProgressReader(path, after_seq=1)
    assert reader.read(10) == []
    write_records(path, [note(1), note(2), note(3)])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type":"progress_rec')
    assert reader.read(1) == [note(2)]
    assert reader.read(10) == [note(3)]
    assert reader.read(10) == []
    write_records(path, [note(n) for n in range(1, 6)])
    assert reader.read(10) == [note(4), note(5)]


@given(st.lists(st.integers(0, 700_000), max_size=12), st.integers(0, 12), st.integers(1, 5))
def test_progress_pages_miss_nothing_and_repeat_nothing(tmp_path_factory, sizes, after, limit):
    path = tmp_path_factory.mktemp("progress") / "progress.jsonl"
    records = [note(number, "y" * size) for number, size in enumerate(sizes, start=1)]
    write_records(path, records)
    reader = logs.ProgressReader(path, after)
    taken = []
    while page := reader.read(limit):
        assert len(page) <= limit
        taken += page
    assert taken == records[after:]


@pytest.mark.parametrize("size", [10, 5_000, 100_000, 700_000])
def test_the_last_progress_record_is_found_however_long_it_is(tmp_path, size):
    path = tmp_path / "progress.jsonl"
    write_records(path, [note(1), note(2, "z" * size)])
    with path.open("ab") as file:
        file.write(b'{"torn')
    assert logs.read_last_progress(str(path)) == note(2, "z" * size)


@pytest.mark.parametrize("result", ["[]", '{"outputs": [{"path": 3}]}', '{"outputs": 3}', "{", '{"outputs": [null]}'])
def test_a_result_of_a_wrong_shape_is_a_failure_and_not_a_crash(tmp_path, result):
    (tmp_path / "result.json").write_text(result)
    outcome = judge(tmp_path, exit_code=0, killed_by=None, stop=None)
    assert outcome.name == "failed"
    assert "result.json cannot be read" in outcome.reason


def test_a_promised_output_that_is_not_there_is_named(tmp_path):
    (tmp_path / "result.json").write_text(
        f'{{"outputs": [{{"path": "{tmp_path}/gone", "manifest_sha256": "{"0" * 64}"}}]}}'
    )
    outcome = judge(tmp_path, exit_code=0, killed_by=None, stop=None)
    assert (outcome.name, f"{tmp_path}/gone/manifest.json" in outcome.reason) == ("failed", True)


def test_a_directory_that_cannot_be_read_for_a_moment_looks_as_before(workshop, monkeypatch):
    before = workshop.start("steady", "import time; time.sleep(600)")
    workshop.start("other", "import time; time.sleep(600)")
    workshop.store.list()

    def stale(path):
        if "steady" in str(path):
            raise OSError(116, "Stale file handle")
        return True

    monkeypatch.setattr(locks, "is_held", stale)
    listed = {job.job_id: job.state for job in workshop.store.list()}
    assert listed["steady"] == before.state
    assert set(listed) == {"steady", "other"}
    with pytest.raises(OSError, match="Stale"):
        workshop.store.get("steady")


def test_a_log_above_its_limit_loses_its_oldest_half_and_keeps_its_offsets(tmp_path):
    line = b"%07d " + b"x" * 55 + b"\n"
    written = b"".join(line % number for number in range(16384))
    (tmp_path / "out.log").write_bytes(written)
    bound = LogBound(tmp_path, 256 << 10)
    bound.trim()
    if not bound.is_possible:
        pytest.skip("this file system cannot punch holes")
    log = tmp_path / "out.log"
    assert log.stat().st_size == len(written)
    assert log.stat().st_blocks * 512 <= (256 << 10)
    page = read_log(log, 0, 1 << 16)
    assert len(written) - page.start <= 128 << 10
    assert page.offset == page.start
    assert page.data == written[page.start : page.start + len(page.data)]
    assert page.data.startswith(written[page.start : page.start + 7]), "it begins with a whole line"
    assert (page.start, page.size) == (read_start(tmp_path), len(written))
    with log.open("ab") as more:
        more.write(b"later\n")
    bound.trim()
    assert read_start(tmp_path) == page.start, "below its limit it is left alone"
    assert read_log(log, None, 6).data == b"later\n"


def test_a_log_that_cannot_be_punched_keeps_its_start(tmp_path, monkeypatch):
    (tmp_path / "out.log").write_bytes(b"a line\n" * 40_000)
    monkeypatch.setattr("remote.jobs.log_bound.punch", lambda descriptor, end: errno.EOPNOTSUPP)
    bound = LogBound(tmp_path, 64 << 10)
    bound.trim()
    assert not bound.is_possible
    assert read_log(tmp_path / "out.log", 0, 7).data == b"a line\n"
