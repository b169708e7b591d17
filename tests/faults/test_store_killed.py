"""kill -9 at every step of writing a store, and of a whole extraction: what is gone on with ends as if nothing had been."""

import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from remote.artifacts.hidden_states import StoreReader
from remote.artifacts.manifest import verify
from remote.artifacts.quarantine import Quarantined
from remote.artifacts.store_writer import StoreWriter
from remote.protocol.progress import ExtractionAdvanced, ProgressRecord
from remote.protocol.specs import ExtractionSpec
from tests.agents.test_extraction_worker import CONVERSATIONS, LAYERS, Engine, spec_of
from tests.artifacts.test_hidden_states import plan_of, properties, sample

REPOSITORY = Path(__file__).parents[2]
SAMPLES = [sample(number, 3 + number) for number in range(8)]
UNFIT = 4
STEPS = ("pwrite", "fsync", "ftruncate", "replace", "rename", "unlink")
"""The calls by which a store reaches the disk."""


def content(store: Path) -> dict[str, str]:
    """The hashes of all files but the manifest, which has the time in it."""
    files = (path for path in sorted(store.iterdir()) if path.name != "manifest.json")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write(store: Path) -> None:
    """The whole store, one sample of which turns out to be unfit."""
    writer = StoreWriter(store, properties(), plan_of(SAMPLES), 700)
    while writer.next_sample is not None or writer.shard_is_whole:
        if writer.shard_is_whole:
            writer.seal()
        elif writer.position == UNFIT:
            writer.leave_out([Quarantined(sample_id=SAMPLES[UNFIT].sample_id, reason="unfit")])
        else:
            writer.write(SAMPLES[writer.position])
    writer.finish(fingerprint="f", inputs={})


def write_until_killed(store: Path, step: int) -> None:
    """Be killed before the step of that number; a write is half done by then."""
    taken = iter(range(1_000_000))

    def killed_at(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            if next(taken) == step:
                if name == "pwrite":
                    descriptor, data, offset = arguments
                    real(descriptor, data[: len(data) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    for name in STEPS:
        setattr(os, name, killed_at(name, getattr(os, name)))
    write(store)
    os._exit(0)


def test_a_store_is_the_same_after_a_kill_at_any_step(tmp_path: Path) -> None:
    write(tmp_path / "plain")
    expected = content(tmp_path / "plain")
    fork = multiprocessing.get_context("fork")
    for step in range(1_000):
        store = tmp_path / f"killed-{step}"
        child = fork.Process(target=write_until_killed, args=(store, step))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        if not (store / "manifest.json").exists():
            write(store)
        made = content(store)
        made.pop("begun.json", None)  # killed after the manifest, which is the last word
        assert made == expected
        verify(store)
    assert step > 30


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "spool").mkdir()
    made = Engine(tmp_path / "spool")
    made.ready(LAYERS)
    yield made
    made.server.shutdown()


def start(spec: ExtractionSpec, root: Path, name: str) -> "subprocess.Popen[bytes]":
    """The worker as a supervisor starts it."""
    job = root / name
    job.mkdir(exist_ok=True)
    (job / "spec.json").write_bytes(msgspec.json.encode(spec))
    environment = {**os.environ, "ROOST_JOB_DIR": str(job), "ROOST_ROOT": str(root), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen([sys.executable, "-m", "remote.agents.extraction.worker"], env=environment)


def advances(root: Path) -> list[int]:
    lines = (line for path in sorted(root.glob("*/progress.jsonl")) for line in path.read_bytes().splitlines())
    events = (msgspec.json.decode(line, type=ProgressRecord).event for line in lines)
    return [event.samples_done for event in events if isinstance(event, ExtractionAdvanced)]


def test_an_extraction_that_is_killed_again_and_again_ends_as_if_nothing_had_been(
    engine: Engine, tmp_path: Path
) -> None:
    spec = spec_of(engine, tmp_path)
    assert start(spec, tmp_path, "plain").wait() == 0
    expected = content(tmp_path / "store")
    engine.sent.clear()
    second = msgspec.structs.replace(spec, store=str(tmp_path / "second"))
    for number, kill_after in enumerate((3, 9, 8, 14)):
        process = start(second, tmp_path, f"killed-{number}")
        due = len(engine.sent) + kill_after
        engine.after = lambda count, process=process, due=due: process.kill() if count >= due else None
        assert process.wait() in (-signal.SIGKILL, 0)
    engine.after = lambda count: None
    assert start(second, tmp_path, "last").wait() == 0
    assert content(tmp_path / "second") == expected
    assert len(engine.sent) > len(StoreReader(tmp_path / "store"))
    ids = StoreReader(tmp_path / "second").sample_ids
    wanted = [json.loads(line)["id"] for line in CONVERSATIONS.read_text().splitlines()]
    assert sorted(ids) == sorted(wanted)
