"""The job of a demo host: it learns, and it leaves real devices alone."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from remote.agents.exercise import worker
from remote.agents.exercise.bigrams import Bigrams
from remote.protocol.specs import ExerciseSpec


def test_it_learns_what_follows_what():
    text = "abcd" * 50
    model = Bigrams(text)
    learned = [model.step(range(len(text) - 1), 8.0) for _ in range(20)]
    assert learned[0].loss > 1.3
    assert learned[-1].loss < learned[0].loss / 4
    assert learned[-1].accuracy == 1.0
    assert learned[-1].gradient_norm < learned[0].gradient_norm


def test_it_is_refused_where_the_devices_are_real(tmp_path):
    directory = tmp_path / "jobs/exercise"
    directory.mkdir(parents=True)
    (directory / "spec.json").write_bytes(msgspec.json.encode(ExerciseSpec(gpus=8, steps=1, step_s=0.0)))
    environment = {key: value for key, value in os.environ.items() if key != "NVML_STANDIN_SCENARIO"}
    done = subprocess.run(
        [sys.executable, "-m", worker.__name__],
        env={**environment, "ROOST_JOB_DIR": str(directory), "ROOST_ROOT": str(tmp_path)},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert "real" in done.stderr
