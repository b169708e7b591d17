"""The real engine on this machine's CPU: what it captures is what transformers computes, and a drafter changes nothing but speed."""

import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from remote.protocol.progress import ServerPhase, ServerRestarting
from remote.protocol.run import EngineConfig, SpeculationConfig
from remote.protocol.specs import Capture, DrafterServing, ServerSpec
from remote.telemetry.engine import EngineEndpoint, EngineReader
from tests.faults.small_disks import SmallDisk, mounted, small_disk

from .conftest import Serve, ServerJob, generate, living, reference_states

__all__ = ["mounted", "small_disk"]

pytestmark = pytest.mark.engine

CHUNK = 48
LENGTHS = [5, 130, 17, 48, 96, 61, 1, 33]
"""Shorter than, equal to and longer than a chunk, and multiples of it."""

READ_TOKENS = 250
LOGGED = (r"accept len: ([\d.]+)", r"accept rate: ([\d.]+)", r"gen throughput \(token/s\): ([\d.]+)")


def prompts(seed: int, lengths: list[int]) -> list[list[int]]:
    chosen = random.Random(seed)
    return [[chosen.randrange(3, 512) for _ in range(length)] for length in lengths]


def engine(backend: str, **more: int) -> EngineConfig:
    flags = {"chunked-prefill-size": CHUNK, **more}
    return EngineConfig(
        device="cpu",
        dtype="float32",
        attention_backend=backend,
        max_running_requests=8,
        context_length=512,
        flags=flags,
    )


def captured(server: ServerJob, spool: Path, asked: list[list[int]]) -> list[dict[str, torch.Tensor]]:
    """What the plugin wrote for `asked`, all of them sent at once."""
    url = server.wait_until_ready().url
    with ThreadPoolExecutor(8) as senders:
        rids = [f"roost-test-{index}" for index in range(len(asked))]
        answers = list(senders.map(lambda pair: generate(url, pair[0], 1, pair[1]), zip(asked, rids, strict=True)))
    assert [answer["meta_info"]["cached_tokens"] for answer in answers] == [0] * len(asked)
    files = [spool / f"{rid}.safetensors" for rid in rids]
    deadline = time.monotonic() + 60
    while not all(file.exists() for file in files) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(path.name for path in spool.iterdir()) == sorted(
        ["ready-rank0.json", "waiting-rank0.json", *(file.name for file in files)]
    )
    return [load_file(file) for file in files]


def assert_readings_are_the_engines_own(server: ServerJob, url: str, asked: list[list[int]]) -> None:
    """What the metrics give while `asked` is answered, beside the answers' own numbers and the engine's log."""
    reader = EngineReader(lambda: [EngineEndpoint("server", "sglang", url)])
    reader.read()
    logged = len(server.log())
    samples, times = [], [time.monotonic()]
    with ThreadPoolExecutor(len(asked)) as senders:
        answers = [senders.submit(generate, url, ids, READ_TOKENS) for ids in asked]
        while not all(answer.done() for answer in answers):
            time.sleep(0.5)
            samples += reader.read()
            times.append(time.monotonic())
    samples += reader.read()
    times.append(time.monotonic())
    told = [answer.result()["meta_info"] for answer in answers]
    assert all(sample.is_answering for sample in samples)
    assert max(sample.running_requests or 0 for sample in samples) == len(asked)

    counted = sum((sample.decode_tokens_per_s or 0.0) * (times[i + 1] - times[i]) for i, sample in enumerate(samples))
    generated = sum(meta["completion_tokens"] - 1 for meta in told)
    assert counted == pytest.approx(generated, rel=0.1)
    calls = sum(meta["spec_verify_ct"] for meta in told)
    assert samples[-1].acceptance_length == pytest.approx(generated / calls, rel=0.2)

    lines = [line for line in server.log()[logged:].splitlines() if "Decode batch" in line]
    lengths, rates, speeds = ([float(found) for found in re.findall(pattern, "\n".join(lines))] for pattern in LOGGED)
    assert samples[-1].acceptance_length == pytest.approx(mean(lengths), rel=0.2)
    assert samples[-1].acceptance_rate == pytest.approx(mean(rates), abs=0.1)
    # The first line covers the rest before, the first and the last reading are of seconds with and without work.
    read = [rate for sample in samples if (rate := sample.decode_tokens_per_s)]
    assert median(read[1:-1]) == pytest.approx(median(speeds[1:]), rel=0.4)


def assert_as_transformers(states: list[dict[str, torch.Tensor]], reference: Path, layers: list[int]) -> None:
    expected = load_file(reference)
    for index, state in enumerate(states):
        hidden = expected[f"hidden.{index}"]
        for column, layer in enumerate(layers):
            torch.testing.assert_close(state["hidden_states"][:, column], hidden[layer], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(state["final_hidden_states"], hidden[-1], rtol=1e-4, atol=1e-4)


def test_a_drafter_changes_the_speed_and_not_the_text(
    serve: Serve, tiny_models: Path, engine_python: Path, tmp_path: Path
) -> None:
    layers, spool, target = [1, 2, 3], tmp_path / "spool", tiny_models / "tiny-llama"
    capture = Capture(layer_ids=layers, spool_directory=str(spool))
    server = serve(ServerSpec(model=str(target), engine=engine("intel_amx"), capture=capture))
    asked = prompts(1, LENGTHS)
    states = captured(server, spool, asked)
    assert [state["input_ids"].tolist() for state in states] == asked
    assert_as_transformers(
        states, reference_states(engine_python, target, asked, tmp_path / "reference.safetensors"), layers
    )
    url = server.wait_until_ready().url
    questions = prompts(2, [9, 24, 60, 100])
    without = [generate(url, question, 32)["output_ids"] for question in questions]

    phases = [event.phase for event in server.events() if isinstance(event, ServerPhase)]
    assert phases == ["launching", "loading_weights", "warming_up"]
    family = server.family()
    assert len(family) >= 2
    code, result = server.stop()
    assert (code, result.summary["url"]) == (0, url)
    assert not living(family)

    drafter = DrafterServing(model=str(tiny_models / "copy-llama"), speculation=SpeculationConfig())
    logs_often = engine("intel_amx", **{"decode-log-interval": 5})
    server = serve(ServerSpec(model=str(target), engine=logs_often, drafter=drafter))
    url = server.wait_until_ready().url
    with_drafter = [generate(url, question, 32) for question in questions]
    assert [answer["output_ids"] for answer in with_drafter] == without
    verified = sum(answer["meta_info"]["spec_verify_ct"] for answer in with_drafter)
    assert 32 * len(questions) / verified > 1.05
    assert_readings_are_the_engines_own(server, url, prompts(3, [20, 40, 60, 80]))
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "speculation"),
    [("dsv3", SpeculationConfig()), ("llama", SpeculationConfig(num_steps=3, top_k=2, draft_tokens=6))],
    ids=["latent attention", "a draft tree"],
)
def test_other_drafters_change_no_text(
    serve: Serve, tiny_models: Path, name: str, speculation: SpeculationConfig
) -> None:
    target, questions = str(tiny_models / f"tiny-{name}"), prompts(4, [9, 60])
    drafter = DrafterServing(model=str(tiny_models / f"copy-{name}"), speculation=speculation)
    texts = []
    for spec in (
        ServerSpec(model=target, engine=engine("intel_amx")),
        ServerSpec(model=target, engine=engine("intel_amx"), drafter=drafter),
    ):
        server = serve(spec)
        url = server.wait_until_ready().url
        texts.append([generate(url, question, 24)["output_ids"] for question in questions])
        server.stop()
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_a_full_spool_makes_the_capture_wait_and_loses_nothing(
    serve: Serve, tiny_models: Path, small_disk: SmallDisk
) -> None:
    spool = small_disk.path / "spool"
    capture = Capture(layer_ids=[1, 2, 3], spool_directory=str(spool))
    server = serve(ServerSpec(model=str(tiny_models / "tiny-llama"), engine=engine("intel_amx"), capture=capture))
    url = server.wait_until_ready().url
    small_disk.fill()
    asked = prompts(4, LENGTHS + LENGTHS)
    rids = [f"roost-full-{index}" for index in range(len(asked))]
    with ThreadPoolExecutor(8) as senders:
        answers = list(senders.map(lambda pair: generate(url, pair[0], 1, pair[1]), zip(asked, rids, strict=True)))
    assert len(answers) == len(asked), "the engine answers, although nothing that it captured can be written"
    waits = json.loads((spool / "waiting-rank0.json").read_bytes())
    assert "No space left on device" in waits["refusal"]
    assert not [path for path in spool.iterdir() if path.suffix in (".part", ".safetensors")]
    small_disk.make_room()
    files = [spool / f"{rid}.safetensors" for rid in rids]
    deadline = time.monotonic() + 60
    while not all(file.exists() for file in files) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [load_file(file)["input_ids"].tolist() for file in files] == asked
    assert not list(spool.glob("error-rank*.json"))


def test_a_launch_that_dies_says_what_the_engine_said(serve: Serve, tiny_models: Path) -> None:
    broken = EngineConfig(device="cpu", flags={"mem-fraction-static": "much"})
    server = serve(ServerSpec(model=str(tiny_models / "tiny-llama"), engine=broken))
    assert server.process.wait(120) == 1
    failure = (server.directory / "failure.json").read_text()
    assert "much" in failure


def test_an_option_that_the_engine_does_not_know_is_refused_before_the_launch(serve: Serve, tiny_models: Path) -> None:
    broken = EngineConfig(device="cpu", flags={"no-such-flag": True})
    server = serve(ServerSpec(model=str(tiny_models / "tiny-llama"), engine=broken))
    assert server.process.wait(120) == 5
    failure = (server.directory / "failure.json").read_text()
    assert "no-such-flag" in failure
    assert "engine.flags" in failure


@pytest.mark.slow
def test_a_killed_scheduler_ends_the_job_with_the_reason_and_leaves_nothing(serve: Serve, tiny_models: Path) -> None:
    server = serve(ServerSpec(model=str(tiny_models / "tiny-llama"), engine=engine("torch_native")))
    server.wait_until_ready()
    family = server.family()
    (scheduler,) = [process for process in family if "sglang::scheduler" in " ".join(process.cmdline())]
    scheduler.kill()
    failure = server.failure()
    assert "while it was serving" in failure.message
    assert "was killed or crashed" in failure.message
    assert "dmesg" in (failure.hint or "")
    assert not living(family)


@pytest.mark.slow
def test_a_killed_scheduler_is_launched_again_and_serves_at_the_same_place(serve: Serve, tiny_models: Path) -> None:
    again = msgspec.structs.replace(engine("torch_native"), restarts=1)
    server = serve(ServerSpec(model=str(tiny_models / "tiny-llama"), engine=again))
    first = server.wait_until_ready()
    family = server.family()
    (scheduler,) = [process for process in family if "sglang::scheduler" in " ".join(process.cmdline())]
    scheduler.kill()
    second = server.wait_until_ready(after=first)
    assert (second.url, second.restarts) == (first.url, 1)
    assert not living(family)
    (told,) = [event for event in server.events() if isinstance(event, ServerRestarting)]
    assert "was killed or crashed" in told.reason
    assert len(generate(second.url, [5, 6, 7], 4, "roost-again")["output_ids"]) == 4


@pytest.mark.slow
def test_a_port_that_is_taken_is_told(serve: Serve, tiny_models: Path) -> None:
    server = serve(ServerSpec(model=str(tiny_models / "tiny-llama"), engine=engine("torch_native")))
    with server.take_port():
        failure = server.failure()
    assert "before it was ready" in failure.message
    assert "took its port" in failure.message
