"""Real vLLM on this machine's CPU, launched as a run launches it, with a drafter as the trainer exports it."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from remote.agents.training.export import ExportedMapping, write_checkpoint
from remote.agents.training.model import Drafter
from remote.agents.training.shape import DrafterShape
from remote.agents.training.speculators_layout import write_speculators
from remote.agents.training.target import read_target_config, read_target_weights
from remote.protocol.progress import ServerPhase
from remote.protocol.run import EngineConfig, SpeculationConfig
from remote.protocol.specs import DrafterServing, ServerSpec
from remote.telemetry.engine import EngineEndpoint, EngineReader

from .conftest import Serve, living

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TARGET = Path(__file__).parents[1] / "fixtures/tiny_target/model"
LAYERS = [1, 2, 3]
QUESTIONS = [[5, 60, 200, 17], list(range(30, 90)), [100] * 9]
TOKENS = 32


@pytest.fixture(scope="module")
def drafters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same one, untrained, for a draft vocabulary of the even tokens, as engines read it and as speculators keeps it."""
    target = read_target_config(TARGET)
    shape = DrafterShape(
        hidden_size=target.hidden_size,
        intermediate_size=target.intermediate_size,
        num_attention_heads=target.num_attention_heads,
        num_key_value_heads=target.num_key_value_heads,
        head_dim=target.head_dim,
        vocab_size=target.vocab_size,
        draft_vocab_size=target.vocab_size // 2,
        aux_layers=len(LAYERS),
        rms_norm_eps=target.rms_norm_eps,
        rope=target.rope,
        max_position_embeddings=target.max_position_embeddings,
        normalise_aux=True,
    )
    kept = torch.arange(0, target.vocab_size, 2)
    mask = torch.zeros(target.vocab_size, dtype=torch.bool)
    mask[kept] = True
    torch.manual_seed(0)
    ours, theirs = (tmp_path_factory.mktemp(name) for name in ("drafter", "speculators"))
    mapping, drafter = ExportedMapping(kept - torch.arange(len(kept)), mask), Drafter(shape)
    write_checkpoint(ours, drafter, mapping, target=target, layer_ids=LAYERS)
    write_speculators(
        theirs,
        drafter,
        mapping,
        target=target,
        layer_ids=LAYERS,
        verifier=str(TARGET),
        embedding=read_target_weights(TARGET).embedding,
    )
    return ours, theirs


@pytest.fixture(scope="module")
def drafter(drafters: tuple[Path, Path]) -> Path:
    return drafters[0]


def spec(python: Path, *, drafter: Path | None = None) -> ServerSpec:
    engine = EngineConfig(
        name="vllm",
        python=str(python),
        device="cpu",
        dtype="float32",
        context_length=256,
        max_running_requests=4,
    )
    speculation = SpeculationConfig(num_steps=2, draft_tokens=3)
    serving = DrafterServing(model=str(drafter), speculation=speculation, layer_ids=LAYERS) if drafter else None
    return ServerSpec(model=str(TARGET), engine=engine, drafter=serving)


def answer(url: str, question: list[int]) -> dict[str, Any]:
    body = {"prompt": question, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=300).raise_for_status().json()


def texts(url: str) -> list[list[int]]:
    return [answer(url, question)["choices"][0]["token_ids"] for question in QUESTIONS]


def test_our_drafter_changes_no_text_and_its_verifications_are_counted(
    serve_elsewhere: Serve, vllm_python: Path, drafter: Path
) -> None:
    server = serve_elsewhere(spec(vllm_python, drafter=drafter))
    ready = server.wait_until_ready()
    assert (ready.engine, ready.engine_version) == ("vllm", "0.32.0")
    phases = [event.phase for event in server.events() if isinstance(event, ServerPhase)]
    assert phases == ["launching", "loading_weights", "warming_up"]

    reader = EngineReader(lambda: [EngineEndpoint("server", "vllm", ready.url)])
    reader.read()
    drafted = texts(ready.url)
    (sample,) = reader.read()
    assert (sample.is_answering, sample.running_requests, sample.queued_requests) == (True, 0, 0)
    assert sample.decode_tokens_per_s is not None
    assert sample.decode_tokens_per_s > 0
    assert sample.acceptance_length is not None
    assert 1 <= sample.acceptance_length <= 3
    metrics = httpx.get(f"{ready.url}/metrics").text
    counted = [line for line in metrics.splitlines() if line.startswith("vllm:spec_decode_num_drafts_total")]
    assert float(counted[0].split()[-1]) > 0
    told = answer(ready.url, QUESTIONS[0])["metrics"]["speculative_decoding"]
    assert told["num_spec_steps"] > 0

    family = server.family()
    assert any("EngineCore" in " ".join(process.cmdline()) for process in family)
    code, result = server.stop()
    assert (code, result.summary["url"]) == (0, ready.url)
    assert not living(family)

    plain = serve_elsewhere(spec(vllm_python))
    assert texts(plain.wait_until_ready().url) == drafted
    plain.stop()


def test_both_layouts_are_the_same_drafter(vllm_python: Path, drafters: tuple[Path, Path], tmp_path: Path) -> None:
    said = [_offline(vllm_python, drafter, tmp_path / "said.json") for drafter in drafters]
    assert said[0]["counters"]["vllm:spec_decode_num_drafts"] > 0
    assert said[0] == said[1]


def _offline(python: Path, drafter: Path, output: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("vllm_offline.py")
    command = [python, script, TARGET, drafter, json.dumps(QUESTIONS), str(TOKENS), output]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(output.read_text())


def test_a_killed_engine_core_ends_the_job_with_the_reason_and_leaves_nothing(
    serve_elsewhere: Serve, vllm_python: Path
) -> None:
    server = serve_elsewhere(spec(vllm_python))
    server.wait_until_ready()
    family = server.family()
    (core,) = [process for process in family if "EngineCore" in " ".join(process.cmdline())]
    core.kill()
    failure = server.failure()
    assert "while it was serving" in failure.message
    assert "was killed or crashed" in failure.message
    assert "dmesg" in (failure.hint or "")
    assert not living(family)


def test_a_killed_server_takes_its_engine_core_along(serve_elsewhere: Serve, vllm_python: Path) -> None:
    server = serve_elsewhere(spec(vllm_python))
    ready = server.wait_until_ready()
    family = server.family()
    next(process for process in family if process.pid == ready.pid).send_signal(signal.SIGKILL)
    assert "signal 9" in server.failure().message
    assert not living(family)


def test_a_port_that_is_taken_is_told(serve_elsewhere: Serve, vllm_python: Path) -> None:
    server = serve_elsewhere(spec(vllm_python))
    with server.take_port():
        failure = server.failure()
    assert "before it was ready" in failure.message
    assert "took its port" in failure.message


def test_a_stop_in_the_middle_of_a_request_does_not_wait_for_it(serve_elsewhere: Serve, vllm_python: Path) -> None:
    server = serve_elsewhere(spec(vllm_python))
    url = server.wait_until_ready().url
    body = {"prompt": QUESTIONS[0], "max_tokens": 250, "temperature": 0, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=300) as response:
        next(response.iter_lines())
        family = server.family()
        code, _ = server.stop()
    assert code == 0
    assert not living(family)
