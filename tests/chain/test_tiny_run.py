"""The whole chain as a user runs it: the `roost` command, real SSH, real SGLang, real training, on the tiny target."""

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import psutil
import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures/tiny_target"
STAGES = ["preflight", "server", "extraction", "vocabulary", "training", "serving", "evaluation", "verdict"]

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def roost(new_roost):
    made = new_roost()
    shutil.copytree(FIXTURES / "model", made.root / "models/tiny-target")
    for path in (FIXTURES / "conversations").iterdir():
        shutil.copy(path, made.root / "conversations")
    return made


@pytest.fixture(scope="module")
def finished_run(roost) -> tuple[int, dict, str]:
    """A run whose SSH server is killed while it trains: the command says so, reconnects and sees the run to its end."""
    process = roost.start("run", "tiny", "--wait", "--json")
    narration: list[str] = []
    killed = False

    def listen() -> None:
        nonlocal killed
        assert process.stderr is not None
        for line in process.stderr:
            narration.append(line)
            if "training: running" in line and not killed:
                killed = True
                os.kill(roost.server_pid(), signal.SIGKILL)

    listener = threading.Thread(target=listen)
    listener.start()
    assert process.stdout is not None
    out = process.stdout.read()
    listener.join()
    return process.wait(), json.loads(out), "".join(narration)


def test_the_run_ends_with_a_verdict_that_names_both_rates(finished_run) -> None:
    code, document, narration = finished_run
    assert code == 0, narration
    job, verdict = document["run"]["job"], document["run"]["verdict"]
    assert document["schema_version"] == 1
    assert job["state"]["outcome"] == "succeeded"
    assert verdict["decision"] in ("promote", "reject", "inconclusive")
    assert verdict["baseline_tokens_per_s"] > 0
    assert verdict["drafter_tokens_per_s"] > 0
    assert verdict["speedup"] == pytest.approx(verdict["drafter_tokens_per_s"] / verdict["baseline_tokens_per_s"])
    assert verdict["engine"] == "sglang 0.5.23"


def test_greedy_outputs_with_the_drafter_are_those_without(finished_run) -> None:
    verdict = finished_run[1]["run"]["verdict"]
    assert verdict["dtype"] == "float32"
    assert verdict["real_divergences"] == 0
    assert verdict["identical_outputs"] + verdict["near_ties"] == verdict["prompts"]


def test_a_trained_drafter_is_accepted(finished_run) -> None:
    assert finished_run[1]["run"]["verdict"]["acceptance_length"] > 1.2


def test_a_killed_ssh_server_is_told_and_survived(finished_run) -> None:
    narration = finished_run[2]
    assert "link lost" in narration
    assert narration.index("link is up again") > narration.index("link lost")
    for stage in STAGES[1:]:
        assert f"{stage}: done" in narration, stage


def test_every_artifact_is_sealed_and_says_what_it_is(finished_run, roost) -> None:
    outputs = {output["kind"]: Path(output["path"]) for output in finished_run[1]["run"]["job"]["result"]["outputs"]}
    assert {"store", "mapping", "drafter", "evaluation", "verdict"} <= set(outputs)
    store = json.loads((outputs["store"] / "manifest.json").read_bytes())
    assert store["properties"]["layer_ids"] == [1, 2, 3]
    assert store["properties"]["final_norm"] == "post_norm"
    assert store["properties"]["samples"] == 120
    assert len([entry for entry in store["files"] if entry["name"].startswith("shard")]) > 1
    config = json.loads((outputs["drafter"] / "config.json").read_bytes())
    # SGLang counts a Llama's layers one lower than Hugging Face does.
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]
    assert config["draft_vocab_size"] == 256
    code, document, _ = roost("vocabulary", "validate", str(outputs["mapping"]))
    assert (code, document["mapping"]["valid"]) == (0, True)


def test_nothing_of_the_run_is_left_running(finished_run, roost) -> None:
    code, document, _ = roost("jobs")
    assert code == 0
    assert {job["state"]["type"] for job in document["jobs"] if job["agent"] != "recorder"} == {"finished"}
    left = [
        process.cmdline()
        for process in psutil.process_iter()
        if roost.owns(process) and "sglang" in " ".join(process.cmdline())
    ]
    assert left == []


def test_the_log_of_the_training_is_complete(finished_run, roost) -> None:
    job_id = finished_run[1]["run"]["job"]["job_id"] + "-training"
    log = b""
    while True:
        code, document, _ = roost("logs", job_id, "--since", str(len(log)), "--limit", "4096")
        assert code == 0
        page = document["log"]
        log += page["text"].encode()
        if page["next_cursor"] == page["size"]:
            break
    assert log == (roost.root / "jobs" / job_id / "out.log").read_bytes()


def test_running_it_again_does_nothing_twice(finished_run, roost) -> None:
    before = (roost.root / "runs/tiny/store/manifest.json").stat().st_mtime_ns
    code, document, narration = roost("run", "tiny", "--wait")
    assert code == 0, narration
    for stage in ("extraction", "vocabulary", "training"):
        assert f"{stage}: skipped" in narration
    first = finished_run[1]["run"]["verdict"]
    if any(level["counts"] and level["disturbed"] for level in first["levels"]):  # the tests' own machine was busy
        assert "evaluation: done" in narration
    else:
        assert document["run"]["verdict"] == first
    assert (roost.root / "runs/tiny/store/manifest.json").stat().st_mtime_ns == before


def test_a_verdict_can_be_required(finished_run, roost) -> None:
    code, document, _ = roost("run", "tiny", "--wait", "--require", "promote")
    assert code == (0 if document["run"]["verdict"]["decision"] == "promote" else 5)


def test_a_plan_says_what_would_be_done(roost) -> None:
    code, document, _ = roost("plan", "tiny", "--set", "vocabulary.draft_vocab_size=9999")
    assert code == 5
    assert any("9,999" in problem or "9999" in problem for problem in document["plan"]["problems"])
    assert [stage["stage"] for stage in document["plan"]["stages"]] == STAGES


def test_too_little_coverage_stops_a_run_before_anything_is_trained(finished_run, roost) -> None:
    small = ("--set", "vocabulary.draft_vocab_size=32", "--set", "vocabulary.minimum_coverage=0.999")
    mapping = (roost.root / "runs/tiny/mapping/manifest.json").read_bytes()
    code, document, narration = roost("run", "tiny", *small, "--wait")
    assert code == 5, narration
    assert "extraction: skipped" in narration
    assert "vocabulary: failed" in narration
    job = document["run"]["job"]
    assert job["state"]["outcome"] == "failed"
    assert "of the store's answer tokens, the run asks for 99.9%" in job["state"]["reason"]
    assert "hint: raise vocabulary.draft_vocab_size" in narration
    assert "what is finished will not be done twice" in narration
    _, jobs, _ = roost("jobs")
    assert not [one for one in jobs["jobs"] if one["run_id"] == job["job_id"] and one["agent"] == "training"]
    kept = roost.root.glob("runs/tiny/mapping.superseded-*/manifest.json")
    assert mapping in [path.read_bytes() for path in kept]
