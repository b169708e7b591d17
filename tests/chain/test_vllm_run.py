"""Runs that serve with vLLM: a drafter that comes of SGLang's states, measured on the other engine, and one that comes of vLLM's own."""

import shutil
from pathlib import Path

import psutil
import pytest
import tomlkit

from remote.artifacts.hidden_states import StoreReader
from remote.pipeline.config import load_preset

FIXTURES = Path(__file__).parents[1] / "fixtures/tiny_target"
RUN = """
preset = "tiny"
name = "tiny-vllm"
[serving]
name = "vllm"
python = "{python}"
device = "cpu"
context_length = 256
max_running_requests = 4
"""

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def roost(new_roost):
    made = new_roost()
    shutil.copytree(FIXTURES / "model", made.root / "models/tiny-target")
    for path in (FIXTURES / "conversations").iterdir():
        shutil.copy(path, made.root / "conversations")
    return made


@pytest.fixture(scope="module")
def finished_run(roost, vllm_python: Path) -> dict:
    run_file = roost.root / "tiny-vllm.toml"
    run_file.write_text(RUN.format(python=vllm_python))
    code, document, narration = roost("run", str(run_file), "--wait")
    assert code == 0, narration
    return document["run"]


def test_the_drafter_is_measured_on_vllm_and_changes_no_text(finished_run) -> None:
    verdict = finished_run["verdict"]
    assert verdict["engine"] == "vllm 0.32.0"
    assert verdict["dtype"] == "float32"
    assert verdict["baseline_tokens_per_s"] > 0
    assert verdict["drafter_tokens_per_s"] > 0
    assert verdict["real_divergences"] == 0
    assert verdict["identical_outputs"] + verdict["near_ties"] == verdict["prompts"]


def test_what_sglang_captured_teaches_a_drafter_that_vllm_accepts(finished_run) -> None:
    verdict = finished_run["verdict"]
    assert verdict["acceptance_length"] > 1.2
    first, second = verdict["position_acceptance"]
    assert 0 < second <= first <= 1


def test_each_engine_did_its_part(finished_run, roost) -> None:
    run_id = finished_run["job"]["job_id"]
    logs = {name: roost.log(f"{run_id}-{name}") for name in ("server", "serving", "baseline-server")}
    assert "-m sglang.launch_server" in logs["server"]
    for arm in ("serving", "baseline-server"):
        assert "-m vllm.entrypoints.openai.api_server" in logs[arm]
        # Before each of the two levels: no answer of the one shortens a prompt of the next.
        assert logs[arm].count('"POST /reset_prefix_cache HTTP/1.1" 200') == 2, arm
    assert "SpecDecoding metrics" not in logs["baseline-server"]


def test_nothing_of_the_run_is_left_running(finished_run, roost) -> None:
    left = [
        process.cmdline()
        for process in psutil.process_iter()
        if roost.owns(process) and any(word in " ".join(process.cmdline()) for word in ("vllm", "VLLM", "sglang"))
    ]
    assert left == []


def test_what_vllm_captures_teaches_a_drafter_just_as_well(roost, vllm_python: Path) -> None:
    run = load_preset("tiny") | {"name": "all-vllm"}
    run["engine"] = {
        "name": "vllm",
        "python": str(vllm_python),
        "device": "cpu",
        # Some processors refuse what vLLM's own kernels for bfloat16 do on a CPU.
        "dtype": "float32",
        "context_length": 256,
        "max_running_requests": 8,
        # Shorter than most conversations, so that prefills are cut.
        "flags": {"max-num-batched-tokens": 64},
    }
    del run["evaluation"]["attention_backend"]
    run_file = roost.root / "all-vllm.toml"
    run_file.write_text(tomlkit.dumps(run))
    code, document, narration = roost("run", str(run_file), "--wait")
    assert code == 0, narration
    verdict = document["run"]["verdict"]
    assert verdict["acceptance_length"] > 1.2
    assert verdict["real_divergences"] == 0

    store = StoreReader(roost.root / "runs/all-vllm/store")
    assert (store.properties.engine, store.properties.engine_version) == ("vllm", "0.32.0")
    assert (store.properties.layer_ids, store.properties.final_norm) == ([1, 2, 3], "post_norm")
    assert len(store) > 100
