"""Every worker's main, as a process: what goes out, in which order, and with which exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from remote.protocol.codec import decode_progress_record
from remote.protocol.specs import MappingCopySpec

REPOSITORY = Path(__file__).parents[2]

PRELUDE = """
import sys
from remote.agents.harness import Stopped, main
from remote.errors import Conflict, Precondition, WorkFailed
from remote.protocol.jobs import JobResult
from remote.protocol.progress import Note
from remote.protocol.specs import MappingCopySpec, VocabularySpec
def note(job, text): job.tell(Note(level="info", text=text))
"""


class Worker:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        spec = MappingCopySpec(source="/a", destination="/b")
        (directory / "spec.json").write_bytes(msgspec.json.encode(spec))

    def start(self, body: str, spec_type: str = "MappingCopySpec") -> "subprocess.Popen[str]":
        script = f"{PRELUDE}\ndef work(spec, job):\n{_indent(body)}\nmain({spec_type}, work)\n"
        environment = {
            **os.environ,
            "ROOST_JOB_DIR": str(self.directory),
            "ROOST_ROOT": str(self.directory.parent),
            "PYTHONPATH": str(REPOSITORY),
        }
        return subprocess.Popen(
            [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, body: str, spec_type: str = "MappingCopySpec") -> tuple[int, str]:
        process = self.start(body, spec_type)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out

    def failure(self) -> dict:
        return json.loads((self.directory / "failure.json").read_bytes())

    def notes(self) -> list[str]:
        lines = (self.directory / "progress.jsonl").read_bytes().splitlines()
        records = [decode_progress_record(line) for line in lines]
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        return [record.event.text for record in records]

    def has_result(self) -> bool:
        return (self.directory / "result.json").exists()


def _indent(body: str) -> str:
    return "\n".join(f"    {line}" for line in body.strip().splitlines())


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path / "job-1")


def test_a_result_is_written_and_the_log_tells_what_was_told(worker: Worker) -> None:
    code, out = worker.run("note(job, f'{spec.source} {job.job_id}')\nreturn JobResult(summary={'n': 3})")
    assert code == 0, out
    assert json.loads((worker.directory / "result.json").read_bytes())["summary"] == {"n": 3}
    assert worker.notes() == ["/a job-1"]
    assert "note level=info text=/a job-1" in out


def test_the_result_is_the_last_that_is_written(worker: Worker) -> None:
    body = "assert not (job.directory / 'result.json').exists()\nnote(job, 'x')\nreturn JobResult()"
    code, out = worker.run(body)
    assert code == 0, out
    written = {path.name: path.stat().st_mtime_ns for path in worker.directory.iterdir()}
    assert set(written) == {"spec.json", "progress.jsonl", "result.json"}
    assert max(written, key=lambda name: (written[name], name == "result.json")) == "result.json"


@pytest.mark.parametrize(("error", "code"), [("Precondition", 5), ("Conflict", 5), ("WorkFailed", 1)])
def test_a_refusal_has_its_code_its_reason_and_its_hint(worker: Worker, error: str, code: int) -> None:
    status, out = worker.run(f"raise {error}('no room', hint='make some')")
    assert status == code
    assert (worker.failure()["message"], worker.failure()["hint"]) == ("no room", "make some")
    assert "error: no room" in out
    assert not worker.has_result()


def test_an_unexpected_error_is_told_with_its_traceback(worker: Worker) -> None:
    code, out = worker.run("return 1 / 0")
    assert code == 1
    assert "ZeroDivisionError" in worker.failure()["message"]
    assert "Traceback" in out
    assert not worker.has_result()


def test_a_spec_of_another_kind_is_refused(worker: Worker) -> None:
    code, _ = worker.run("return JobResult()", spec_type="VocabularySpec")
    assert code == 1
    assert "MappingCopySpec" in worker.failure()["message"]
    assert not worker.has_result()


def test_a_spec_that_is_none_is_told(worker: Worker) -> None:
    (worker.directory / "spec.json").write_text('{"type": "half')
    code, _ = worker.run("return JobResult()")
    assert code == 1
    assert "not a spec" in worker.failure()["message"]


@pytest.mark.parametrize("message", ["'x' * (2 << 20)", "'caf\\udce9'"], ids=["over-long", "not-utf-8"])
def test_a_refusal_is_told_whatever_its_words_are(worker: Worker, message: str) -> None:
    code, out = worker.run(f"raise Precondition({message})")
    assert code == 5, out[-2000:]
    assert len(worker.failure()["message"]) < 1 << 20
    assert len(worker.notes()) == 1
    assert not worker.has_result()


def test_an_event_that_cannot_be_told_leaves_no_gap(worker: Worker) -> None:
    body = """
note(job, 'one')
try:
    note(job, 'x' * (2 << 20))
except ValueError:
    note(job, 'two')
return JobResult()
"""
    code, out = worker.run(body)
    assert code == 0, out[-2000:]
    assert worker.notes() == ["one", "two"]


def test_a_log_in_another_encoding_does_not_end_the_work(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, out = worker.run("note(job, 'caf\\xe9')\nreturn JobResult()")
    assert code == 0, out
    assert worker.notes() == ["café"]


def test_a_stop_ends_the_work_without_a_result(worker: Worker) -> None:
    process = worker.start("note(job, 'begun')\njob.stop_requested.wait(60)\njob.check_stop()\nreturn JobResult()")
    deadline = time.monotonic() + 30
    while not (worker.directory / "progress.jsonl").exists() or not worker.notes():
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert not worker.has_result()


def test_progress_goes_on_counting_after_a_restart(worker: Worker) -> None:
    worker.run("note(job, 'one')\nreturn JobResult()")
    worker.run("note(job, 'two')\nreturn JobResult()")
    assert worker.notes() == ["one", "two"]


def test_many_threads_tell_without_a_gap(worker: Worker) -> None:
    body = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda number: note(job, str(number)), range(200)))
return JobResult()
"""
    code, out = worker.run(body)
    assert code == 0, out
    assert sorted(worker.notes(), key=int) == [str(number) for number in range(200)]


def test_no_record_of_a_worker_holds_a_token_of_its_environment(worker, monkeypatch) -> None:
    token = "hf_" + "x1Y2" * 9
    monkeypatch.setenv("HF_TOKEN", token)
    body = f"""
token = {token[:20]!r} + {token[20:]!r}
note(job, "the token is " + token)
raise WorkFailed("cannot download with " + token + "x" * 20000, hint="is " + token + " valid?")
"""
    code, log = worker.run(body)
    assert code == 1
    assert "the token is ****" in log
    assert token not in log
    assert all(token.encode() not in path.read_bytes() for path in worker.directory.iterdir())
    assert b"cannot download with ****" in (worker.directory / "failure.json").read_bytes()
