"""What trackers have of a training, read back by their own libraries: each step once, whatever became of the training meanwhile."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from remote.agents.training.trackers import feeding as feeding_module
from remote.agents.training.trackers.feeding import feeding
from remote.agents.training.trackers.process import Feeder, place_of
from remote.agents.training.trackers.sinks import TensorBoard
from remote.protocol.progress import CheckpointSaved, DrafterMeasured, Note, ProgressRecord, StepLogged
from remote.protocol.run import TrackersConfig

from .test_training_worker import Inputs, Run

REPOSITORY = Path(__file__).parents[2]
WARNING = "is told no more, the training goes on without it"


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(tmp_path)


def warnings(run: Run) -> list[str]:
    return [event.text for event in run.events() if isinstance(event, Note) and event.level == "warning"]


def of_kind(run: Run, kind: type) -> dict:
    return {event.step: event for event in run.events() if isinstance(event, kind)}


def scalars(place: Path) -> EventAccumulator:
    found = EventAccumulator(str(place), size_guidance={"scalars": 0})
    found.Reload()
    return found


def series(found: EventAccumulator, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in found.Scalars(name)]


def test_tensorboard_has_what_was_told_while_another_tracker_fails(inputs, tmp_path, monkeypatch):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/wandb.py").write_text("def init(**_): raise RuntimeError('no network\\nTraceback')")
    monkeypatch.setattr(f"{Run.__module__}.REPOSITORY", f"{REPOSITORY}{os.pathsep}{tmp_path / 'packages'}")
    run = Run(tmp_path / "job", inputs.spec(trackers=TrackersConfig(use=["wandb", "tensorboard"])))
    assert run.wait() == 0, run.text()
    assert warnings(run) == [f"Weights & Biases {WARNING}: AttributeError: module 'wandb' has no attribute 'Settings'"]
    found = scalars(tmp_path / "a/trackers/tensorboard/job")
    steps, measured = of_kind(run, StepLogged), of_kind(run, DrafterMeasured)
    assert list(steps) == [10, 20, 30, 40, 50, 60]
    expected = {
        "train/loss": lambda step: step.loss,
        "train/accuracy_0": lambda step: step.accuracy[0],
        "train/loss_2": lambda step: step.losses[2],
        "train/acceptance_length": lambda step: step.acceptance_length,
        "train/lr": lambda step: step.learning_rate,
        "train/grad_norm": lambda step: step.gradient_norm,
        "train/tokens_per_s": lambda step: step.tokens_per_s,
        "train/input_wait": lambda step: step.input_wait_fraction,
    }
    for name, value in expected.items():
        assert series(found, name) == [(step, pytest.approx(value(told), rel=1e-6)) for step, told in steps.items()]
    lengths = [(step, pytest.approx(told.acceptance_length, rel=1e-6)) for step, told in measured.items()]
    assert series(found, "validation/acceptance_length") == lengths
    assert text(found, "config")["training"]["learning_rate"] == 5e-3
    assert text(found, "summary") == run.result().summary
    assert any("tensorboard --logdir" in event.text for event in run.events() if isinstance(event, Note))


def text(found: EventAccumulator, name: str) -> dict:
    (value,) = found.Tensors(name)
    return json.loads(value.tensor_proto.string_val[0].decode().strip("`").removeprefix("json"))


def test_what_tensorboard_knew_of_steps_that_are_done_again_is_hidden(tmp_path):
    for first, last, loss in ((1, 21, 1.0), (17, 30, 2.0)):
        sink = TensorBoard(tmp_path, "run", {"learning_rate": 1e-3})
        assert sink.begin(first) == first - 1
        for step in range(first, last + 1):
            sink.log(step, 1000.0 + step, {"train/loss": loss})
        sink.finish({})
    found = scalars(tmp_path / "tensorboard/run")
    assert series(found, "train/loss") == [(step, 1.0 if step < 17 else 2.0) for step in range(1, 31)]
    assert {event.wall_time for event in found.Scalars("train/loss")} == {1000.0 + step for step in range(1, 31)}


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("raise ImportError('no such library')", "ImportError: no such library"),
        ("import os; os.abort()", "its process ended (signal 6)"),
        ("import time; time.sleep(3600)", "its process ended (signal 9)"),
    ],
    ids=["absent", "dies", "hangs"],
)
def test_a_tracker_that_fails_is_told_once_and_not_waited_for_without_end(inputs, tmp_path, monkeypatch, module, why):
    (tmp_path / "wandb.py").write_text(module)
    spec = inputs.spec(trackers=TrackersConfig(use=["wandb"]))
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(spec))
    monkeypatch.setenv("ROOST_JOB_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}{os.pathsep}{tmp_path}")
    monkeypatch.setattr(feeding_module, "_PATIENCE_S", 0.5 if "9" in why else 60.0)
    told: list[Note] = []
    context = SimpleNamespace(tell=told.append, stop_requested=SimpleNamespace(is_set=lambda: False))
    with feeding(spec, context) as summary:
        summary["steps"] = 1
    assert [note.text for note in told] == [f"Weights & Biases {WARNING}: {why}"]


class Recorded:
    """A sink that keeps what it was given; `certain` when it knows what it has, and it loses the newest `lost` when it is killed."""

    place = "here"

    def __init__(self, rows: list[tuple[int, str]], *, certain: bool) -> None:
        self.rows = rows
        self.certain = certain

    def begin(self, step: int) -> int | None:
        return max((at for at, kind in self.rows if kind == "step"), default=0) if self.certain else None

    def log(self, step: int, at: float, figures: dict[str, float]) -> None:
        self.rows.append((step, "step" if "train/loss" in figures else "measured"))

    def finish(self, summary: dict) -> None:
        raise AssertionError("killed")


def step_logged(step: int) -> StepLogged:
    return StepLogged(
        step=step,
        total_steps=100,
        loss=1.0,
        accuracy=[0.5],
        learning_rate=1e-3,
        gradient_norm=1.0,
        tokens_per_s=1.0,
        input_wait_fraction=0.0,
    )


def told_from(checkpoint: int, until: int) -> list:
    """What a training tells that begins behind a checkpoint and is killed after a step; every eighth step is kept and measured."""
    events: list = []
    for step in range(checkpoint + 1, until + 1):
        events.append(step_logged(step))
        if step % 8 == 0:
            events.append(CheckpointSaved(step=step, path="p", bytes=1))
            events.append(DrafterMeasured(step=step, acceptance_length=1.5, accuracy=[0.5], tokens=9, best=True))
    return events


@settings(max_examples=30)
@given(lives=st.lists(st.integers(1, 12), min_size=1, max_size=6), certain=st.booleans())
def test_each_step_is_handed_over_once_however_often_a_training_is_killed(tmp_path_factory, lives, certain):
    path = tmp_path_factory.mktemp("place") / "wandb.json"
    rows: list[tuple[int, str]] = []
    reached = 0
    for number, steps in enumerate(lives):
        checkpoint = reached // 8 * 8
        feeder = Feeder(Recorded(rows, certain=certain), place_of(path, "f", f"job-{number}"), path)
        reached = checkpoint + steps
        for seq, event in enumerate(told_from(checkpoint, reached), 1):
            feeder.take(ProgressRecord(seq=seq, at=float(seq), event=event))
    most = max(step for step, _ in rows)
    expected = [
        row
        for step in range(1, most + 1)
        for row in ((step, "step"), (step, "measured"))
        if row[1] == "step" or step % 8 == 0
    ]
    assert rows == expected
    assert place_of(path, "f", "another").name == "job-0"
    assert place_of(path, "another training", "another").name == "another"


@pytest.fixture(scope="session")
def tracker_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """wandb and trackio beside the tests' own packages."""
    directory = tmp_path_factory.mktemp("trackers")
    requirements = REPOSITORY / "tests/agents/tracker_requirements.txt"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", directory, "-r", requirements]
    subprocess.run(install, check=True)
    return directory


READ_TRACKIO = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
from trackio import Api
runs = [run.name for run in Api().runs("drafters")]
print(json.dumps({"runs": runs, "rows": SQLiteStorage.get_logs("drafters", runs[0]), "config": SQLiteStorage.get_run_config("drafters", runs[0])}))
"""
READ_WANDB = """
import json, struct, sys
from wandb.proto import wandb_internal_pb2
out = {"rows": [], "ids": [], "config": {}, "exit": None}

def records(data):
    # The format of LevelDB's log behind a header of 7 bytes: blocks of 32 KiB, in them pieces of records with crc, length and kind.
    at, whole = 7, b""
    while len(data) - at >= 7:
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""

for data in records(open(sys.argv[1], "rb").read()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "history":
        items = record.history.item
        out["rows"].append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    elif kind == "run":
        out["ids"].append([record.run.run_id, record.run.display_name, record.run.project])
        out["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    elif kind == "exit":
        out["exit"] = record.exit.exit_code
print(json.dumps(out))
"""


def read_back(packages: Path, script: str, *arguments: object, **environment: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(packages)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def kill_after(run: Run, step: int) -> None:
    deadline = time.monotonic() + 100
    while not run.directory.joinpath("progress.jsonl").exists() or max(of_kind(run, StepLogged), default=0) < step:
        assert run.process.poll() is None, run.text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    run.process.kill()
    assert run.wait() != 0


@pytest.mark.slow
def test_trackers_have_a_killed_and_resumed_training_as_one_run(inputs, tmp_path, monkeypatch, tracker_packages):
    paths = os.pathsep.join(map(str, (REPOSITORY, tracker_packages)))
    monkeypatch.setattr(f"{Run.__module__}.REPOSITORY", paths)
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef" * 5)
    trackers = TrackersConfig(use=["wandb", "trackio", "tensorboard"], project="drafters", wandb_mode="offline")
    spec = inputs.spec(trackers=trackers, log_every=1, checkpoint_every=8, steps=400)
    first = Run(tmp_path / "first", spec)
    kill_after(first, 21)
    second = Run(tmp_path / "second", spec)
    assert second.wait() == 0, second.text()
    assert not warnings(second), second.text()
    place = tmp_path / "a/trackers"
    begun = min(of_kind(second, StepLogged))
    assert 1 < begun <= max(of_kind(first, StepLogged))

    assert [path.name for path in (place / "tensorboard").iterdir()] == ["first"]
    told = {step: event.loss for step, event in of_kind(first, StepLogged).items() if step < begun}
    told |= {step: event.loss for step, event in of_kind(second, StepLogged).items()}
    found = series(scalars(place / "tensorboard/first"), "train/loss")
    assert found == [(step, pytest.approx(loss, rel=1e-6)) for step, loss in told.items()]
    assert list(told) == list(range(1, 401))

    found = read_back(tracker_packages, READ_TRACKIO, TRACKIO_DIR=str(place / "trackio"))
    assert found["runs"] == ["first"]
    assert found["config"]["training"]["learning_rate"] == 5e-3
    steps = [row["step"] for row in found["rows"] if "train/loss" in row]
    assert steps == list(range(1, 401))
    losses = {row["step"]: row["train/loss"] for row in found["rows"] if "train/loss" in row}
    assert losses == pytest.approx(told)
    measured = [row["step"] for row in found["rows"] if "validation/acceptance_length" in row]
    assert measured == list(range(8, 401, 8))

    files = sorted((place / "wandb").glob("offline-run-*/*.wandb"))
    parts = [read_back(tracker_packages, READ_WANDB, file) for file in files]
    assert len(parts) == 2
    assert {tuple(one) for part in parts for one in part["ids"]} == {(parts[0]["ids"][0][0], "first", "drafters")}
    rows = [row for part in parts for row in part["rows"]]
    assert [row["train/global_step"] for row in rows if "train/loss" in row] == list(range(1, 401))
    assert parts[-1]["exit"] == 0
    secret = os.environ["WANDB_API_KEY"].encode()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]
