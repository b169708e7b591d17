"""`roost server tune` and `roost server tuning`."""

import json
from pathlib import Path

import msgspec
import pytest
from protocol_samples import TUNING_PLAN, TUNING_REPORT

from console.cli.server_text import tuning_lines
from remote.protocol.jobs import Finished
from remote.protocol.requests import StartJob
from remote.protocol.specs import TuningSpec


def test_a_dry_run_shows_the_trials_and_what_is_wrong(played_host, roost) -> None:
    told = roost("server", "tune", "embedded", "--dry-run")
    assert told.exit_code == 5
    assert "speculation.num_steps=3" in told.stdout
    assert "round 1: 1 trial and the present settings, 16 prompts each" in told.stdout
    assert "problem:" in told.stdout
    assert not any(isinstance(request, StartJob) for request in played_host.asked)


def test_a_tuning_with_problems_is_not_started(played_host, roost) -> None:
    assert roost("server", "tune", "embedded").exit_code == 5
    assert not any(isinstance(request, StartJob) for request in played_host.asked)


def test_the_winner_goes_into_the_run_file_and_only_there(played_host, roost, tmp_path: Path) -> None:
    played_host.tuning_plan = msgspec.structs.replace(TUNING_PLAN, problems=[])
    played_host.started_as = Finished(
        started_at=1.0, ended_at=2.0, outcome="succeeded", exit_code=0, signal=None, reason=""
    )
    file = tmp_path / "run.toml"
    file.write_text('preset = "embedded"  # mine\n')
    told = roost("server", "tune", str(file), "--wait", "--apply")
    assert told.exit_code == 0
    (spec,) = [request.spec for request in played_host.asked if isinstance(request, StartJob)]
    assert isinstance(spec, TuningSpec)
    assert "winner: speculation.num_steps=3" in told.stdout
    assert file.read_text().startswith('preset = "embedded"  # mine\n')
    assert "num_steps = 3" in file.read_text()


@pytest.mark.parametrize("recaptures", [True, False])
def test_what_a_winner_costs_is_said_before_it_is_written(played_host, roost, tmp_path: Path, recaptures: bool) -> None:
    trial = msgspec.structs.replace(TUNING_REPORT.trials[0], recaptures=recaptures)
    played_host.tuning_report = msgspec.structs.replace(TUNING_REPORT, trials=[trial])
    file = tmp_path / "run.toml"
    file.write_text("")
    said = roost("server", "tuning", "tuning-1", "--apply", str(file)).stderr
    assert ("makes the store, the mapping and the drafter anew" in said.partition("wrote")[0]) is recaptures
    assert ("captures anew" in roost("server", "tuning", "tuning-1").stdout) is recaptures


def test_a_preset_is_not_written_to(played_host, roost) -> None:
    told = roost("server", "tune", "embedded", "--wait", "--apply")
    assert told.exit_code == 2
    assert "is a preset" in told.stderr
    assert roost("server", "tune", "embedded", "--apply").exit_code == 2
    assert played_host.asked == []


def test_what_was_found_is_told_again_and_written(played_host, roost, tmp_path: Path) -> None:
    assert "1.09x (1.02 to 1.15)" in roost("server", "tuning", "tuning-1").stdout
    document = json.loads(roost("server", "tuning", "tuning-1", "--json").stdout)
    assert document["tuning_report"]["winner"] == 3
    written = roost("server", "tuning", "tuning-1", "--output", str(tmp_path / "out"))
    assert written.stdout == ""
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.md", "tuning.json", "trials.svg"}


def test_without_a_winner_nothing_is_written(played_host, roost, tmp_path: Path) -> None:
    played_host.tuning_report = msgspec.structs.replace(TUNING_REPORT, winner=None, reason="not surely faster")
    file = tmp_path / "run.toml"
    file.write_text("")
    told = roost("server", "tuning", "tuning-1", "--apply", str(file))
    assert told.exit_code == 5
    assert "not surely faster" in told.stderr
    assert file.read_text() == ""


@pytest.mark.parametrize("width", [1, 400])
def test_any_reason_stays_on_its_line(width: int) -> None:
    trials = [msgspec.structs.replace(TUNING_REPORT.trials[0], reason="a\nb" * width)]
    lines = tuning_lines(msgspec.structs.replace(TUNING_REPORT, trials=trials))
    assert not any("\n" in line for line in lines)
