"""Every preset as a run of its own: it is read, it plans, and its servers ask for nothing that their engine does not know."""

import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from remote.agents.server.options import EngineOptions, complaints, parse_help
from remote.agents.server.plan import engine_command
from remote.pipeline import stages
from remote.pipeline.config import load_run, preset_names
from remote.pipeline.fingerprints import UNDECIDED
from remote.pipeline.plan import draw_plan
from remote.pipeline.stages import Blueprint
from remote.protocol.specs import Arm

GOLDEN = Path(__file__).resolve().parents[1] / "golden/server"
KNOWN = EngineOptions("0.5.23", parse_help((GOLDEN / "sglang-0.5.23-help.txt").read_text()))
LLAMA = {"architectures": ["LlamaForCausalLM"]}
TARGETS = {
    "tiny": LLAMA | {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 3, "vocab_size": 512},
    "embedded": LLAMA | {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "vocab_size": 49152},
    "llama-3.1-8b-1x-h100": LLAMA
    | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 128256},
}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {"hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "vocab_size": 163840},
}

ARMS: tuple[Arm, ...] = ("drafter", "baseline")

every_preset = pytest.mark.parametrize("name", preset_names())


def text_of(name: str) -> str:
    return resources.files("remote").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")


def test_there_is_a_target_for_each() -> None:
    assert {name for name in preset_names() if "kimi" not in name} == set(TARGETS)


@every_preset
def test_its_sizes_fit_together(name: str) -> None:
    run = load_run(f'preset = "{name}"')
    assert run.name == name or run.engine.device == "cuda"
    assert run.speculation.draft_tokens == run.speculation.num_steps + 1
    assert run.speculation.num_steps <= run.training.ttt_length
    assert max(run.evaluation.concurrency) <= (run.serving_engine.max_running_requests or 0)
    assert run.extraction.concurrency <= (run.engine.max_running_requests or 0)
    assert run.data.max_length <= (run.engine.context_length or 0)
    positions = run.training.drafter.max_position_embeddings
    assert positions is None or positions >= (run.serving_engine.context_length or 0)


@every_preset
def test_its_servers_use_options_that_the_engine_has(name: str) -> None:
    run = load_run(f'preset = "{name}"')
    blueprint = Blueprint.draw(run, Path("/root"), UNDECIDED)
    config = TARGETS.get(name, KIMI)
    for spec in (stages.capture_server(blueprint), *(stages.evaluation_server(blueprint, arm) for arm in ARMS)):
        command = engine_command(spec, python="/python", port=1, model_config=config)
        assert complaints(command.flags, KNOWN) == []


@every_preset
def test_it_plans(name: str, tmp_path: Path, root_maker: Callable[[Path], Path]) -> None:
    root = root_maker(tmp_path / "root")
    run = load_run(f'preset = "{name}"')
    config = TARGETS.get(name, KIMI)
    sizes = {"intermediate_size": 64, "max_position_embeddings": 65536}
    model = root / run.target.model
    model.mkdir(parents=True)
    model.joinpath("config.json").write_text(
        json.dumps(config | {"text_config": config.get("text_config", config) | sizes})
    )
    model.joinpath("tokenizer.json").write_text("{}")
    model.joinpath("model.safetensors").write_bytes(b"\0")
    for path in (run.data.train, run.data.evaluation):
        turns = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": path}]
        lines = [json.dumps({"id": f"c-{n}", "conversations": turns}) for n in range(run.evaluation.prompts)]
        (root / path).write_text("\n".join(lines))
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\ncase $* in\n*--help*) cat {GOLDEN}/sglang-0.5.23-help.txt;;\n*) echo 0.5.23;;\nesac\n"
    )
    python.chmod(0o755)
    plan, _ = draw_plan(run, root=root, python=str(python))
    assert [stage.stage for stage in plan.stages if stage.command and stage.action == "run"] == [
        "server",
        "extraction",
        "vocabulary",
        "training",
        "serving",
        "evaluation",
    ]
    # What this machine lacks is no fault of the preset.
    assert [found for found in plan.problems if "GPU" not in found and not found.startswith("the run will write")] == []


@pytest.mark.parametrize("name", [name for name in preset_names() if name != "tiny"])
def test_each_setting_of_its_engine_has_a_reason(name: str) -> None:
    section, explained, bare = "", False, []
    for line in text_of(name).splitlines():
        if line.startswith("["):
            section, explained = line.strip("[]"), False
        elif line.startswith("#"):
            explained = True
        elif section.startswith("engine") and line and not explained:
            bare.append(line)
    assert [line for line in bare if not line.startswith("device = ")] == []


@pytest.mark.engine
def test_variables_that_sglang_reads_are_named_as_it_names_them(engine_python: Path) -> None:
    (environ,) = engine_python.parent.parent.glob("lib/python3*/site-packages/sglang/srt/environ.py")
    known = set(re.findall(r"^    (SGLANG_\w+) =", environ.read_text(), re.MULTILINE))
    named = {
        variable
        for name in preset_names()
        for variable in load_run(f'preset = "{name}"').engine.environment
        if variable.startswith("SGLANG_")
    }
    assert named
    assert named <= known
